package deviceplugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/internal/wholefile"
)

// Options configures a [Manager].
type Options struct {
	Dir string // of the sockets; created if missing
	// Also is a further directory of the same kind; empty means none. If it can't be used, plug-ins there are not, and a warning says
	// so: a kubelet that runs beside this agent keeps its own.
	Also string
	// State is the file in which the devices of containers are kept; its directory exists when Run is called.
	State string
	// Changed is called when capacities have changed. It must not block.
	Changed func()
	// Holder returns the state of a pod that has devices; nil means that every such pod is Active. It must not block.
	Holder func(pod types.UID) Holding
	// Registered and Allocated are called when a plug-in of a resource has registered, and when it has answered a request for devices;
	// nil means that they are not counted. They must not block.
	Registered func(resource string)
	Allocated  func(resource string, took time.Duration)
	Log        *slog.Logger
}

// Holding is the state of a pod that has devices.
type Holding int

// A pod keeps its devices while it is Active. One that is Ending releases them when its containers have ended. One that
// is Gone has nothing left on the node.
const (
	Active Holding = iota
	Ending
	Gone
)

// The limits of what plug-ins may do.
const (
	maxPlugins = 256
	maxDevices = 16384
	callLimit  = 30 * time.Second // of each call of a plug-in; kubelet's for PreStartContainer
)

// A Manager knows the plug-ins of a node and what they have given to containers. It is safe for concurrent use.
type Manager struct {
	opts Options

	mu        sync.Mutex
	group     *run.Group         // guarded by mu; nil outside of Run
	resources map[string]*supply // guarded by mu; by name of the resource
	grants    map[owner]grant    // guarded by mu
	changed   chan struct{}      // guarded by mu; closed, and replaced, when devices may have become free, see changes
}

// A supply is the devices of one resource.
type supply struct {
	plugin  *plugin                // nil: it has ended
	devices map[string]*api.Device // by id; the last that were reported
}

// A plugin is a connection to a running plug-in.
type plugin struct {
	client  api.DevicePluginClient
	options *api.DevicePluginOptions
	cancel  context.CancelFunc
}

// An owner is a container that has devices of a resource.
type owner struct {
	Pod       types.UID
	Container string
	Resource  string
}

// A grant is what an owner has.
type grant struct {
	Devices  []string
	Response json.RawMessage `json:",omitempty"` // what the plug-in said about them; empty until it has
}

// New returns a manager that has not started.
func New(opts Options) *Manager {
	if opts.Registered == nil {
		opts.Registered = func(string) {}
	}
	if opts.Allocated == nil {
		opts.Allocated = func(string, time.Duration) {}
	}
	if opts.Holder == nil {
		opts.Holder = func(types.UID) Holding { return Active }
	}
	return &Manager{opts: opts, resources: map[string]*supply{}, grants: map[owner]grant{}, changed: make(chan struct{})}
}

// Run serves the registration socket until ctx is cancelled. A record of devices that cannot be read is given up, as by kubelet:
// then devices of containers that run may be given to others.
func (m *Manager) Run(ctx context.Context) error {
	if err := m.load(); err != nil {
		m.opts.Log.Error("the devices that containers have are not known: they may be given to other containers, too", "err", err)
	}
	listener, err := listen(m.opts.Dir)
	if err != nil {
		return fmt.Errorf("device plug-ins: %w", err)
	}
	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	m.mu.Lock()
	m.group = group
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.group = nil
	}()
	ended := make(chan error, 2)
	serve := func(dir string, l net.Listener) *grpc.Server {
		server := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 10))
		api.RegisterRegistrationServer(server, registrar{m: m, dir: dir})
		group.Go(func(context.Context) { ended <- server.Serve(l) })
		return server
	}
	defer serve(m.opts.Dir, listener).Stop()
	if m.opts.Also != "" {
		if l, err := listen(m.opts.Also); err != nil {
			m.opts.Log.Warn("device plug-ins of this directory are not used", "directory", m.opts.Also, "err", err)
		} else {
			defer serve(m.opts.Also, l).Stop()
		}
	}
	select {
	case err := <-ended:
		return fmt.Errorf("device plug-ins: %w", err)
	case <-ctx.Done():
		return nil
	}
}

// listen makes the registration socket of a directory. Plug-ins watch the directory: they register again when the socket is made
// again.
func listen(dir string) (net.Listener, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, filepath.Base(api.KubeletSocket))
	if conn, err := net.Dial("unix", socket); err == nil { //nolint:noctx // it blocks for nothing
		_ = conn.Close()
		return nil, fmt.Errorf("another program serves %s", socket)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", socket) //nolint:noctx // it blocks for nothing
}

// A registrar registers the plug-ins of one directory.
type registrar struct {
	api.UnimplementedRegistrationServer
	m   *Manager
	dir string
}

// Register implements the API of kubelet: a plug-in announces itself.
func (g registrar) Register(ctx context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	m := g.m
	switch {
	case !slices.Contains(api.SupportedVersions[:], r.GetVersion()):
		return nil, fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q", r.GetVersion(), api.SupportedVersions)
	case !extended(r.GetResourceName()):
		return nil, fmt.Errorf("the ResourceName %q is invalid", r.GetResourceName())
	case r.GetEndpoint() == "" || r.GetEndpoint() != filepath.Base(r.GetEndpoint()) || r.GetEndpoint() == "..":
		return nil, fmt.Errorf("endpoint %q is not the name of a socket in %s", r.GetEndpoint(), g.dir)
	}
	m.opts.Registered(r.GetResourceName())
	conn, err := grpc.NewClient("unix://"+filepath.Join(g.dir, r.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.resources[r.GetResourceName()]
	if s == nil {
		if len(m.resources) >= maxPlugins {
			_ = conn.Close()
			return nil, fmt.Errorf("there are %d resources of device plug-ins already", maxPlugins)
		}
		s = &supply{devices: map[string]*api.Device{}}
		m.resources[r.GetResourceName()] = s
	}
	if s.plugin != nil {
		s.plugin.cancel()
	}
	p := &plugin{client: api.NewDevicePluginClient(conn), options: r.GetOptions(), cancel: func() {}}
	if m.group == nil || !m.group.Go(func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		m.mu.Lock()
		p.cancel = cancel
		m.mu.Unlock()
		defer conn.Close()
		m.follow(ctx, r.GetResourceName(), p)
	}) {
		_ = conn.Close()
		return nil, errors.New("the node agent is ending")
	}
	s.plugin = p
	m.opts.Log.InfoContext(ctx, "device plug-in registered", "resource", r.GetResourceName(), "socket", r.GetEndpoint())
	return &api.Empty{}, nil
}

// extended reports whether a plug-in may offer a resource of this name.
func extended(name string) bool {
	domain, rest, ok := strings.Cut(name, "/")
	return ok && domain != "" && rest != "" && !strings.Contains(rest, "/") && !strings.HasSuffix(domain, "kubernetes.io") &&
		!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) && len(name) < 317
}

// follow keeps the devices of a resource up to date until its plug-in ends.
func (m *Manager) follow(ctx context.Context, name string, p *plugin) {
	err := m.receive(ctx, name, p)
	m.mu.Lock()
	if s := m.resources[name]; s.plugin == p {
		s.plugin = nil
	}
	m.changes()
	m.mu.Unlock()
	m.opts.Changed()
	if ctx.Err() == nil {
		m.opts.Log.Warn("device plug-in ended; its devices stay with their containers", "resource", name, "err", err)
	}
}

func (m *Manager) receive(ctx context.Context, name string, p *plugin) error {
	stream, err := p.client.ListAndWatch(ctx, &api.Empty{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if len(r.GetDevices()) > maxDevices {
			return fmt.Errorf("it has %d devices, want at most %d", len(r.GetDevices()), maxDevices)
		}
		devices := make(map[string]*api.Device, len(r.GetDevices()))
		for _, d := range r.GetDevices() {
			devices[d.GetID()] = d
		}
		m.mu.Lock()
		s := m.resources[name]
		current := s.plugin == p
		if current {
			s.devices = devices
			m.changes()
		}
		m.mu.Unlock()
		if !current {
			return errors.New("another plug-in has registered the resource")
		}
		m.opts.Changed()
	}
}

// Resources returns how many devices of each resource the node has, and how many of them can be used.
func (m *Manager) Resources() (capacity, allocatable corev1.ResourceList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	capacity, allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	for name, s := range m.resources {
		healthy := 0
		for _, d := range s.devices {
			if s.plugin != nil && d.GetHealth() == api.Healthy {
				healthy++
			}
		}
		capacity[corev1.ResourceName(name)] = *resource.NewQuantity(int64(len(s.devices)), resource.DecimalSI)
		allocatable[corev1.ResourceName(name)] = *resource.NewQuantity(int64(healthy), resource.DecimalSI)
	}
	return capacity, allocatable
}

// Pods returns the pods whose containers have devices.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[types.UID]bool{}
	for o := range m.grants {
		all[o.Pod] = true
	}
	return slices.Collect(maps.Keys(all))
}

// Status describes the devices of a container, for its status. As in kubelet, a device that no plug-in reports any more counts
// as healthy.
func (m *Manager) Status(pod types.UID, container string) []corev1.ResourceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []corev1.ResourceStatus
	for o, g := range m.grants {
		if o.Pod != pod || o.Container != container || g.Response == nil {
			continue
		}
		status := corev1.ResourceStatus{Name: corev1.ResourceName(o.Resource)}
		for _, id := range slices.Sorted(slices.Values(g.Devices)) {
			r := corev1.ResourceHealth{ResourceID: corev1.ResourceID(id), Health: corev1.ResourceHealthStatusHealthy}
			if s := m.resources[o.Resource]; s != nil && s.devices[id] != nil && s.devices[id].GetHealth() != api.Healthy {
				r.Health = corev1.ResourceHealthStatusUnhealthy
			}
			status.Resources = append(status.Resources, r)
		}
		all = append(all, status)
	}
	sorting.Slice(all, func(a, b corev1.ResourceStatus) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all
}

// Given describes the devices of a container, one by one, with the NUMA nodes that they are at.
func (m *Manager) Given(pod types.UID, container string) []*podresources.ContainerDevices {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*podresources.ContainerDevices
	for o, g := range m.grants {
		if o.Pod == pod && o.Container == container && g.Response != nil {
			all = m.describe(all, o.Resource, g.Devices)
		}
	}
	return sorted(all)
}

// Allocatable describes the healthy devices of all plug-ins.
func (m *Manager) Allocatable() []*podresources.ContainerDevices {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*podresources.ContainerDevices
	for name, s := range m.resources {
		var ids []string
		for id, d := range s.devices {
			if s.plugin != nil && d.GetHealth() == api.Healthy {
				ids = append(ids, id)
			}
		}
		all = m.describe(all, name, ids)
	}
	return sorted(all)
}

// describe adds descriptions of devices. The caller holds mu.
func (m *Manager) describe(all []*podresources.ContainerDevices, name string, ids []string) []*podresources.ContainerDevices {
	for _, id := range ids {
		var nodes []*api.NUMANode
		if s := m.resources[name]; s != nil {
			nodes = s.devices[id].GetTopology().GetNodes()
		}
		if len(nodes) == 0 {
			all = append(all, &podresources.ContainerDevices{ResourceName: name, DeviceIds: []string{id}})
		}
		for _, n := range nodes {
			all = append(all, &podresources.ContainerDevices{ResourceName: name, DeviceIds: []string{id}, Topology: &podresources.TopologyInfo{
				Nodes: []*podresources.NUMANode{{ID: n.GetID()}},
			}})
		}
	}
	return all
}

func sorted(all []*podresources.ContainerDevices) []*podresources.ContainerDevices {
	slices.SortStableFunc(all, func(a, b *podresources.ContainerDevices) int {
		return cmp.Or(strings.Compare(a.GetResourceName(), b.GetResourceName()), slices.Compare(a.GetDeviceIds(), b.GetDeviceIds()))
	})
	return all
}

// Allocate gives each container of the pod the devices that it asks for, unless it has them. It waits for devices of
// pods that are ending. An error is final unless ctx is cancelled: the pod can't run on this node. Resources that no
// plug-in has registered, or that the pod gets by a claim, are left alone.
func (m *Manager) Allocate(ctx context.Context, pod *corev1.Pod) error {
	passed := map[string]bool{} // the init containers that have ended when later containers run
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			passed[c.Name] = true
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, name := range slices.Sorted(maps.Keys(list[i].Resources.Limits)) {
				q := list[i].Resources.Limits[name]
				if q.IsZero() || podstate.FromClaim(pod, name) {
					continue
				}
				r := request{owner: owner{pod.UID, list[i].Name, string(name)}, n: int(q.Value()), passed: passed}
				for {
					err := m.allocate(ctx, r)
					if short := (*shortage)(nil); errors.As(err, &short) && m.awaitDevices(ctx, r) {
						continue
					}
					if err != nil {
						return err
					}
					break
				}
			}
		}
	}
	return nil
}

// A request is for n devices of a resource for a container.
type request struct {
	owner
	n      int
	passed map[string]bool // the init containers of the pod that run before the others; these get their devices again
}

// awaitDevices waits until devices may have become free, and returns false if the request can't be fulfilled by
// waiting: even with the devices of pods that are ending there are too few.
func (m *Manager) awaitDevices(ctx context.Context, r request) bool {
	m.mu.Lock()
	s, changed, held := m.resources[r.Resource], m.changed, map[types.UID]int{}
	count := len(m.free(r))
	for o, g := range m.grants {
		if o.Resource != r.Resource || o.Pod == r.Pod {
			continue
		}
		for _, id := range g.Devices {
			if s.devices[id].GetHealth() == api.Healthy {
				held[o.Pod]++
			}
		}
	}
	plugged := s.plugin != nil
	m.mu.Unlock()
	if !plugged {
		return false
	}
	for uid, n := range held {
		switch m.opts.Holder(uid) {
		case Ending:
			count += n
		case Gone:
			m.Release(uid)
			count += n
		}
	}
	if count < r.n {
		return false
	}
	m.opts.Log.Debug("a pod waits for devices of pods that are ending", "resource", r.Resource, "pod", r.Pod)
	select {
	case <-changed:
		return true
	case <-ctx.Done():
		return false
	}
}

// changes has the requests that wait look again. The caller holds mu.
func (m *Manager) changes() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// allocate gives a container the devices that it asks for.
func (m *Manager) allocate(ctx context.Context, r request) error {
	p, available, again, err := m.available(r)
	if err != nil || p == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var preferred []string
	if p.options.GetGetPreferredAllocationAvailable() && len(again) < r.n {
		answer, err := p.client.GetPreferredAllocation(ctx, &api.PreferredAllocationRequest{ContainerRequests: []*api.ContainerPreferredAllocationRequest{
			{AvailableDeviceIDs: available, MustIncludeDeviceIDs: again, AllocationSize: int32(r.n)},
		}})
		if err == nil && len(answer.GetContainerResponses()) == 1 {
			preferred = answer.GetContainerResponses()[0].GetDeviceIDs()
		}
	}
	ids, err := m.reserve(r, preferred)
	if err != nil {
		return err
	}
	began := time.Now()
	answer, err := p.client.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: ids}}})
	m.opts.Allocated(r.Resource, time.Since(began))
	if err == nil && len(answer.GetContainerResponses()) != 1 {
		err = fmt.Errorf("the plug-in answered for %d containers, want 1", len(answer.GetContainerResponses()))
	}
	if err != nil {
		m.give(r.owner)
		return fmt.Errorf("Allocate failed due to rpc error: %w, which is unexpected", err) //nolint:staticcheck // kubelet's words
	}
	said, err := json.Marshal(answer.GetContainerResponses()[0])
	if err != nil {
		return err
	}
	return m.keep(r.owner, grant{ids, said})
}

// available returns the plug-in of a resource, its free devices, and those of them that an init container of the pod
// has had; nil if there is nothing to do.
func (m *Manager) available(r request) (p *plugin, free, again []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.resources[r.Resource]
	if g, has := m.grants[r.owner]; has && g.Response != nil {
		return nil, nil, nil, nil // given before
	}
	if s == nil {
		return nil, nil, nil, nil
	}
	free = m.free(r)
	if s.plugin == nil || len(free) < r.n {
		return nil, nil, nil, &shortage{r.Resource, r.n, len(free)}
	}
	again = m.again(r, free)
	return s.plugin, free, again[:min(len(again), r.n)], nil
}

// A shortage is the error of a request for more devices than are free.
type shortage struct {
	resource    string
	asked, free int
}

func (s *shortage) Error() string {
	return fmt.Sprintf("Allocate failed due to requested number of devices unavailable for %s. Requested: %d, Available: %d, which is unexpected",
		s.resource, s.asked, s.free)
}

// free returns the healthy devices that no container has which runs at the same time as that of the request, sorted:
// the containers of a pod run when its init containers have ended, except for sidecars. The caller holds mu.
func (m *Manager) free(r request) []string {
	taken := map[string]bool{}
	for o, g := range m.grants {
		if o.Resource != r.Resource || o == r.owner || o.Pod == r.Pod && r.passed[o.Container] {
			continue
		}
		for _, id := range g.Devices {
			taken[id] = true
		}
	}
	var ids []string
	for id, d := range m.resources[r.Resource].devices {
		if !taken[id] && d.GetHealth() == api.Healthy {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// again returns the free devices that init containers of the pod of a request have had. They are used first. The caller
// holds mu.
func (m *Manager) again(r request, free []string) []string {
	had := map[string]bool{}
	for o, g := range m.grants {
		if o.Resource == r.Resource && o.Pod == r.Pod && o != r.owner && r.passed[o.Container] {
			for _, id := range g.Devices {
				had[id] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(free), func(id string) bool { return !had[id] })
}

// reserve takes free devices, first the former ones of an init container, then the preferred ones.
func (m *Manager) reserve(r request, preferred []string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.grants, r.owner) // of a start that was cut off
	free := m.free(r)
	var ids []string
	for _, id := range slices.Concat(m.again(r, free), preferred, free) {
		if len(ids) < r.n && slices.Contains(free, id) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) < r.n {
		return nil, &shortage{r.Resource, r.n, len(free)}
	}
	m.grants[r.owner] = grant{Devices: ids}
	return ids, m.save()
}

func (m *Manager) keep(o owner, g grant) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.grants[o] = g
	return m.save()
}

// give takes the devices of a container back.
func (m *Manager) give(o owner) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.grants, o)
	m.changes()
	if err := m.save(); err != nil {
		m.opts.Log.Warn("devices of containers not written", "err", err)
	}
}

// Release takes back the devices of a pod whose containers have ended for good.
func (m *Manager) Release(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := len(m.grants)
	maps.DeleteFunc(m.grants, func(o owner, _ grant) bool { return o.Pod == pod })
	if len(m.grants) == before {
		return
	}
	m.changes()
	if err := m.save(); err != nil {
		m.opts.Log.Warn("devices of containers not written", "err", err)
	}
}

// Container returns what plug-ins say that the container gets with its devices; nil if it has none. It calls
// PreStartContainer of the plug-ins that want that.
func (m *Manager) Container(ctx context.Context, pod types.UID, container string) ([]*api.ContainerAllocateResponse, error) {
	type start struct {
		p   *plugin
		ids []string
	}
	var all []*api.ContainerAllocateResponse
	var starts []start
	m.mu.Lock()
	for o, g := range m.grants {
		if o.Pod != pod || o.Container != container || g.Response == nil {
			continue
		}
		r := &api.ContainerAllocateResponse{}
		if err := json.Unmarshal(g.Response, r); err != nil {
			m.mu.Unlock()
			return nil, fmt.Errorf("devices of the container: %w", err)
		}
		all = append(all, r)
		if s := m.resources[o.Resource]; s != nil && s.plugin != nil && s.plugin.options.GetPreStartRequired() {
			starts = append(starts, start{s.plugin, g.Devices})
		}
	}
	m.mu.Unlock()
	for _, s := range starts {
		limited, cancel := context.WithTimeout(ctx, callLimit)
		_, err := s.p.client.PreStartContainer(limited, &api.PreStartContainerRequest{DevicesIds: s.ids})
		cancel()
		if err != nil {
			return nil, fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
		}
	}
	return all, nil
}

// An entry is a grant in the state file.
type entry struct {
	Owner owner
	Grant grant
}

// save writes all grants. The caller holds mu.
func (m *Manager) save() error {
	var all []entry
	for o, g := range m.grants {
		all = append(all, entry{o, g})
	}
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := wholefile.Write(m.opts.State, b, 0o600, wholefile.Durable); err != nil {
		return fmt.Errorf("devices of containers: %w", err)
	}
	return nil
}

func (m *Manager) load() error {
	b, err := os.ReadFile(m.opts.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var all []entry
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		return fmt.Errorf("devices of containers: %s: %w", m.opts.State, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range all {
		m.grants[e.Owner] = e.Grant
	}
	return nil
}
