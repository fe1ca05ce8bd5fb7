package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	api "k8s.io/kubelet/pkg/apis/dra/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/pluginregistry"
)

// Options configures a [Manager]. All fields are required.
type Options struct {
	Root string // the agent's directory, without links in it

	// Claim reads a claim from the API server.
	Claim func(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error)
	// Wipe deletes the node's ResourceSlices of a driver; "" means of all drivers.
	Wipe func(ctx context.Context, driver string) error

	Registered func()                 // there is a new driver; it must not block
	Changed    func(pods []types.UID) // the health of devices of these pods has changed; it must not block
	Log        *slog.Logger
}

// callLimit bounds each call of a driver, as in kubelet.
const callLimit = 45 * time.Second

// A Manager knows the drivers of a node, as a [pluginregistry.Handler], and the claims that they have prepared. It is safe for
// concurrent use.
type Manager struct {
	opts    Options
	metrics metrics

	mu      sync.Mutex
	claims  map[key]*claim                  // guarded by mu
	drivers map[string][]*plugin            // guarded by mu; by name of the driver, the newest last
	wipes   map[string]context.CancelFunc   // guarded by mu; drivers whose slices will be deleted
	health  map[string]map[deviceKey]health // guarded by mu; by name of the driver
	group   *run.Group                      // guarded by mu; nil outside of Run
}

// New returns a manager without drivers; call [Manager.Open], and then [Manager.Run].
func New(opts Options) *Manager {
	m := &Manager{
		opts: opts, claims: map[key]*claim{}, drivers: map[string][]*plugin{}, wipes: map[string]context.CancelFunc{},
		health: map[string]map[deviceKey]health{},
	}
	m.metrics = newMetrics(m.registered)
	return m
}

// Open reads the claims that an earlier agent has prepared (dra-D1).
func (m *Manager) Open() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.load()
}

// Run keeps connections to drivers, and deletes the slices of drivers that have ended, until ctx is cancelled. Claims stay
// prepared then.
func (m *Manager) Run(ctx context.Context) error {
	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	m.mu.Lock()
	m.group = group
	group.Go(func(ctx context.Context) { m.wipe(ctx, "") })
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.group = nil
	}()
	<-ctx.Done()
	return nil
}

// Holds reports whether drivers have prepared a claim of a pod, or may have (dra-D2).
func (m *Manager) Holds(pod types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.claims {
		if c.Pods[pod] {
			return true
		}
	}
	return false
}

// Pods returns the pods whose claims drivers have prepared, or may have.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[types.UID]bool{}
	for _, c := range m.claims {
		maps.Copy(all, c.Pods)
	}
	return slices.Sorted(maps.Keys(all))
}

// Needed reports whether a pod uses claims.
func Needed(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// Prepare has drivers prepare the claims of a pod. The error is for users, in kubelet's words. If [Manager.Holds] reports
// false after an error, no driver was called.
func (m *Manager) Prepare(ctx context.Context, pod *corev1.Pod) error {
	if !Needed(pod) {
		return nil
	}
	began := time.Now()
	err := m.prepare(ctx, pod)
	m.metrics.observe("PrepareResources", began, err)
	if err != nil {
		return fmt.Errorf("prepare dynamic resources: %w", err)
	}
	return nil
}

// claimsOf returns the claims in the specification of a pod, with that for its extended resources.
func claimsOf(pod *corev1.Pod) []corev1.PodResourceClaim {
	all := slices.Clone(pod.Spec.ResourceClaims)
	if e := pod.Status.ExtendedResourceClaimStatus; e != nil {
		all = append(all, corev1.PodResourceClaim{ResourceClaimName: &e.ResourceClaimName})
	}
	return all
}

func (m *Manager) prepare(ctx context.Context, pod *corev1.Pod) error {
	// First only checks: a pod whose claims can't be prepared, because there is no driver, can be deleted without one.
	found, err := m.read(ctx, pod)
	if err != nil {
		return err
	}
	calls, err := m.enter(pod.UID, found)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		p, err := m.driver(name)
		if err != nil {
			return err
		}
		request := &api.NodePrepareResourcesRequest{Claims: calls[name]}
		response, err := p.prepare(ctx, request)
		if err != nil {
			return fmt.Errorf("NodePrepareResources: %w", pluginregistry.Brief(err, maxText))
		}
		if err := m.take(name, found, request, response); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range found {
		if c := m.claims[f.key()]; c != nil && c.UID == f.UID {
			c.prepared = true
		}
	}
	if err := m.save(); err != nil {
		return fmt.Errorf("checkpoint ResourceClaim state: %w", err)
	}
	return nil
}

// read reads the claims of a pod, and checks that the pod may use them and that their drivers are there.
func (m *Manager) read(ctx context.Context, pod *corev1.Pod) ([]*claim, error) {
	var found []*claim
	for _, of := range claimsOf(pod) {
		name, owned, err := resourceclaim.Name(pod, &of)
		if err != nil {
			return nil, err
		}
		if name == nil {
			continue // none was made: it is not needed
		}
		object, err := m.opts.Claim(ctx, pod.Namespace, *name)
		if err != nil {
			return nil, fmt.Errorf("fetch ResourceClaim %s: %w", *name, err)
		}
		if owned {
			if err := resourceclaim.IsForPod(pod, object, false); err != nil {
				return nil, err
			}
		}
		if !resourceclaim.IsReservedForPod(pod, object, false) {
			return nil, fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", pod.Name, pod.UID, *name, object.UID)
		}
		if object.Status.Allocation == nil {
			return nil, fmt.Errorf("ResourceClaim %s: not allocated", object.Name)
		}
		c := &claim{UID: object.UID, Name: object.Name, Namespace: object.Namespace, Pods: map[types.UID]bool{}, Drivers: map[string][]device{}}
		for _, r := range object.Status.Allocation.Devices.Results {
			if _, err := m.driver(r.Driver); err != nil {
				return nil, err
			}
			c.Drivers[r.Driver] = nil
		}
		found = append(found, c)
	}
	return found, nil
}

// enter records that a pod uses claims (dra-D1), and returns what has to be prepared, by driver.
func (m *Manager) enter(pod types.UID, found []*claim) (map[string][]*api.Claim, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range found {
		c := m.claims[f.key()]
		switch {
		case c == nil:
		case c.UID != f.UID:
			return nil, fmt.Errorf("old ResourceClaim with same name %s and different UID %s still exists (previous pod force-deleted?!)", f.Name, c.UID)
		case c.unpreparing:
			return nil, fmt.Errorf("ResourceClaim %s is being unprepared", f.Name)
		}
	}
	calls := map[string][]*api.Claim{}
	for _, f := range found {
		c := m.claims[f.key()]
		if c == nil {
			c = f
			m.claims[f.key()] = c
		}
		c.Pods[pod] = true
		if c.prepared {
			continue
		}
		for name := range c.Drivers {
			calls[name] = append(calls[name], &api.Claim{Namespace: c.Namespace, Uid: string(c.UID), Name: c.Name})
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	if err := m.save(); err != nil {
		return nil, fmt.Errorf("checkpoint ResourceClaim cache: %w", err)
	}
	return calls, nil
}

// take records what a driver has prepared.
func (m *Manager) take(driver string, found []*claim, request *api.NodePrepareResourcesRequest, response *api.NodePrepareResourcesResponse) error {
	for uid, result := range response.GetClaims() {
		i := slices.IndexFunc(request.GetClaims(), func(c *api.Claim) bool { return c.GetUid() == uid })
		if i < 0 {
			return fmt.Errorf("NodePrepareResources returned result for unknown claim UID %s", uid)
		}
		if fault := result.GetError(); fault != "" {
			return fmt.Errorf("NodePrepareResources failed for ResourceClaim %s: %w", request.GetClaims()[i].GetName(), pluginregistry.Brief(errors.New(fault), maxText))
		}
		var devices []device
		for _, d := range result.GetDevices() {
			devices = append(devices, device{Pool: d.GetPoolName(), Name: d.GetDeviceName(), Share: d.GetShareId(), Requests: d.GetRequestNames(), CDI: d.GetCdiDeviceIds()})
		}
		m.mu.Lock()
		for _, f := range found {
			if c := m.claims[f.key()]; c != nil && string(c.UID) == uid {
				c.Drivers[driver] = devices
			}
		}
		m.mu.Unlock()
	}
	if rest := len(request.GetClaims()) - len(response.GetClaims()); rest != 0 {
		return fmt.Errorf("NodePrepareResources skipped %d ResourceClaims", rest)
	}
	return nil
}

// Unprepare has drivers unprepare the claims that no other pod uses. The pod's containers have ended. It is to be called again
// after an error.
func (m *Manager) Unprepare(ctx context.Context, pod types.UID) error {
	began := time.Now()
	err := m.unprepare(ctx, pod)
	m.metrics.observe("UnprepareResources", began, err)
	if err != nil {
		return fmt.Errorf("unprepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) unprepare(ctx context.Context, pod types.UID) error {
	last, shared, calls := m.leave(pod)
	if len(last) == 0 && !shared {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		p, err := m.driver(name)
		if err != nil {
			return err
		}
		response, err := p.unprepare(ctx, &api.NodeUnprepareResourcesRequest{Claims: calls[name]})
		if err != nil {
			return fmt.Errorf("NodeUnprepareResources: %w", pluginregistry.Brief(err, maxText))
		}
		for uid, result := range response.GetClaims() {
			i := slices.IndexFunc(calls[name], func(c *api.Claim) bool { return c.GetUid() == uid })
			if i < 0 {
				return fmt.Errorf("NodeUnprepareResources returned result for unknown claim UID %s", uid)
			}
			if fault := result.GetError(); fault != "" {
				return fmt.Errorf("NodeUnprepareResources failed for ResourceClaim %s: %w", calls[name][i].GetName(), pluginregistry.Brief(errors.New(fault), maxText))
			}
		}
		if rest := len(calls[name]) - len(response.GetClaims()); rest != 0 {
			return fmt.Errorf("NodeUnprepareResources skipped %d ResourceClaims", rest)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range last {
		delete(m.claims, c.key())
	}
	if err := m.save(); err != nil {
		for _, c := range last {
			m.claims[c.key()] = c
		}
		return fmt.Errorf("checkpoint ResourceClaim state: %w", err)
	}
	return nil
}

// leave ends the use of claims by a pod, and returns the claims of no other pod, which stay the pod's until they are
// unprepared, with what drivers are to be asked. Shared reports whether it left others.
func (m *Manager) leave(pod types.UID) (last []*claim, shared bool, calls map[string][]*api.Claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls = map[string][]*api.Claim{}
	for _, c := range m.claims {
		switch {
		case !c.Pods[pod]:
		case len(c.Pods) > 1:
			shared = true
			delete(c.Pods, pod)
		default:
			c.unpreparing = true
			last = append(last, c)
			for name := range c.Drivers {
				calls[name] = append(calls[name], &api.Claim{Namespace: c.Namespace, Uid: string(c.UID), Name: c.Name})
			}
		}
	}
	return last, shared, calls
}

// Devices returns the names, for the container runtime, of the devices that a container gets.
func (m *Manager) Devices(pod *corev1.Pod, c *corev1.Container) ([]string, error) {
	requests, err := requestsOf(pod, c)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var ids []string
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		prepared := m.claims[key{pod.Namespace, name}]
		if prepared == nil {
			return nil, fmt.Errorf("internal error: unable to get claim info for ResourceClaim %s in namespace %s", name, pod.Namespace)
		}
		for _, request := range requests[name] {
			for _, driver := range slices.Sorted(maps.Keys(prepared.Drivers)) {
				for _, d := range prepared.Drivers[driver] {
					if d.in(request) {
						ids = append(ids, d.CDI...)
					}
				}
			}
		}
	}
	return unique(ids), nil
}

// Describe describes the claims that a container uses, with all devices that are prepared in them.
func (m *Manager) Describe(pod *corev1.Pod, c *corev1.Container) []*podresources.DynamicResource {
	requests, err := requestsOf(pod, c)
	if err != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*podresources.DynamicResource
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		prepared := m.claims[key{pod.Namespace, name}]
		if prepared == nil {
			continue
		}
		r := &podresources.DynamicResource{ClaimName: prepared.Name, ClaimNamespace: prepared.Namespace}
		for _, driver := range slices.Sorted(maps.Keys(prepared.Drivers)) {
			for _, d := range prepared.Drivers[driver] {
				r.ClaimResources = append(r.ClaimResources, d.describe(driver))
			}
		}
		all = append(all, r)
	}
	return all
}

func (d *device) describe(driver string) *podresources.ClaimResource {
	r := &podresources.ClaimResource{DriverName: driver, PoolName: d.Pool, DeviceName: d.Name}
	for _, id := range d.CDI {
		r.CdiDevices = append(r.CdiDevices, &podresources.CDIDevice{Name: id})
	}
	if d.Share != "" {
		r.ShareId = new(d.Share)
	}
	return r
}

// in reports whether a device is for a request of its claim; "" means any.
func (d *device) in(request string) bool {
	return request == "" || len(d.Requests) == 0 || slices.Contains(d.Requests, request)
}

// unique removes duplicates: two requests of a container may name one device.
func unique(ids []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(ids, func(id string) bool {
		again := seen[id]
		seen[id] = true
		return again
	})
}

// requestsOf returns the requests of claims that a container uses, by the names of the claims.
func requestsOf(pod *corev1.Pod, c *corev1.Container) (map[string][]string, error) {
	requests := map[string][]string{}
	for i := range pod.Spec.ResourceClaims {
		of := &pod.Spec.ResourceClaims[i]
		for _, used := range c.Resources.Claims {
			if used.Name != of.Name {
				continue
			}
			name, _, err := resourceclaim.Name(pod, of)
			if err != nil {
				return nil, err
			}
			if name != nil {
				requests[*name] = append(requests[*name], used.Request)
			}
		}
	}
	if e := pod.Status.ExtendedResourceClaimStatus; e != nil {
		for _, r := range e.RequestMappings {
			if q := c.Resources.Requests[corev1.ResourceName(r.ResourceName)]; r.ContainerName == c.Name && !q.IsZero() {
				requests[e.ResourceClaimName] = append(requests[e.ResourceClaimName], r.RequestName)
			}
		}
	}
	return requests, nil
}
