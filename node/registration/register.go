package registration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/node/metrics"
)

// Options configures a [Registrar].
type Options struct {
	Name     string
	Client   client.Interface
	Runtime  criclient.Runtime
	Owner    string            // of the pods in a runtime of others, whose state is read from time to time; empty: the runtime is the node's alone
	Labels   map[string]string // in addition to the labels of every node
	Taints   []corev1.Taint    // set when the Node object is created
	PodCIDRs []string
	Config   *kubeletconfig.Config

	Self    *cache.Cache[*corev1.Node] // the Node object; the registrar runs it
	Metrics *metrics.Startup
	Log     *slog.Logger
	// Event records an event about the node.
	Event func(kind, reason, format string, args ...any)
	// Trouble is called with each error that keeps the node from being ready for the first time; nil means no call.
	Trouble func(error)
	// Arch returns the architecture of the machine, as Go has it.
	Arch func() string
	// Drivers reports whether CSI drivers can register at the node.
	Drivers func() bool
	// Describe fills in what the parts of the node have in its status, except for conditions and images.
	Describe func(s *corev1.NodeStatus)
	Pressure func() []corev1.NodeConditionType // the conditions of pressure that hold
	Closing  func() bool                       // the machine is shutting down
}

// A Registrar registers the node and keeps its Node object and its lease up to date.
type Registrar struct {
	opts   Options
	ready  chan struct{} // closed when the Node object is there and Ready
	health health
}

func New(o Options) *Registrar {
	return &Registrar{opts: o, ready: make(chan struct{}), health: health{changed: run.NewBell()}}
}

// Ready returns a channel that is closed when the Node object is there and Ready.
func (r *Registrar) Ready() <-chan struct{} { return r.ready }

// Outdated has the status of the node written again, as a part of it has changed.
func (r *Registrar) Outdated() { r.health.notify(true) }

// RuntimeDown records that the container runtime does not answer.
func (r *Registrar) RuntimeDown(why string) { r.health.runtimeDown(why) }

// ReadRuntime reads the state of the container runtime.
func (r *Registrar) ReadRuntime(ctx context.Context) { r.health.set(ctx, r.opts.Runtime) }

// RuntimeHealth returns whether the state of the runtime is known, and what is wrong with it; "" if nothing is.
func (r *Registrar) RuntimeHealth() (known bool, fault string) { return r.health.get() }

// pauseAfter returns the pause after so many failures in a row.
func pauseAfter(failures int) time.Duration {
	return run.Backoff{First: 200 * time.Millisecond, Max: 15 * time.Second}.Pause(failures)
}

// shuttingDown is the message of a node whose machine shuts down.
const shuttingDown = "node is shutting down"

// heartbeat is how often a status that has not changed is written all the same.
func (r *Registrar) heartbeat() time.Duration {
	return r.opts.Config.NodeStatusReportFrequency.Duration
}

// recheck is how often the status of a runtime that is not ready is read again: CRI has
// no event for that.
const recheck = 2 * time.Second

// tolerance is how long a runtime that has answered before may be silent before the node
// is not Ready, as in Kubernetes: its containers keep running, and a runtime that is
// restarted is back before other endpoints are needed.
const tolerance = 30 * time.Second

// health is the state of the runtime, which decides whether the node is Ready.
type health struct {
	changed run.Bell

	mu     sync.Mutex
	known  bool      // guarded by mu; the runtime has said how it is, or cannot
	fault  string    // guarded by mu; what it said; empty: none
	notes  []note    // guarded by mu; what it said that doesn't keep the node from being Ready
	silent time.Time // guarded by mu; since when it says nothing; zero: it does
	why    string    // guarded by mu; it is silent
}

func (h *health) runtimeDown(why string) {
	h.mu.Lock()
	why = "container runtime is down: " + why
	changed := h.silent.IsZero() || h.why != why
	if h.silent.IsZero() {
		h.silent = time.Now()
		if !h.known {
			h.silent = h.silent.Add(-tolerance) // it has never been ready
		}
	}
	h.known, h.why = true, why
	h.mu.Unlock()
	h.notify(changed)
}

// A note is a condition of the runtime that is not as it should be, and doesn't keep
// pods from running.
type note struct{ reason, message string }

func (h *health) note(notes []note) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = notes
}

func (h *health) noted() []note {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.notes
}

func (h *health) put(fault string) {
	h.mu.Lock()
	changed := !h.known || h.fault != fault || !h.silent.IsZero()
	h.known, h.fault, h.silent = true, fault, time.Time{}
	h.mu.Unlock()
	h.notify(changed)
}

func (h *health) notify(changed bool) {
	if !changed {
		return
	}
	h.changed.Ring()
}

// set reads the status of the runtime.
func (h *health) set(ctx context.Context, rt criclient.Runtime) {
	full, err := rt.Status(ctx)
	if err != nil {
		h.runtimeDown(criclient.Message(err))
		return
	}
	s := full.GetStatus()
	var notes []note
	for _, c := range s.GetConditions() {
		if !c.GetStatus() && c.GetType() != cri.RuntimeReady && c.GetType() != cri.NetworkReady {
			notes = append(notes, note{cmp.Or(c.GetReason(), c.GetType()), c.GetMessage()})
		}
	}
	h.note(notes)
	var faults []string
	for _, kind := range []struct{ name, what string }{{cri.RuntimeReady, "container runtime not ready"}, {cri.NetworkReady, "container runtime network not ready"}} {
		for _, c := range s.GetConditions() {
			if c.GetType() == kind.name && !c.GetStatus() {
				faults = append(faults, fmt.Sprintf("%s: %s=false reason:%s message:%s", kind.what, kind.name, c.GetReason(), c.GetMessage()))
			}
		}
	}
	if len(faults) > 1 {
		faults = []string{"[" + strings.Join(faults, ", ") + "]"} // as Kubernetes joins errors
	}
	h.put(strings.Join(faults, ""))
}

func (h *health) get() (known bool, fault string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.silent.IsZero() && time.Since(h.silent) >= tolerance {
		return h.known, h.why
	}
	return h.known, h.fault
}

// tolerated returns how much longer a silent runtime still counts as ready; 0 if it is
// not silent, or has been for too long.
func (h *health) tolerated() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.silent.IsZero() {
		return 0
	}
	return max(0, tolerance-time.Since(h.silent))
}

// Run creates the Node object and keeps it up to date.
func (r *Registrar) Run(ctx context.Context) error {
	seen := run.NewBell()
	r.opts.Self.Subscribe(func(_, _ *corev1.Node) {
		seen.Ring()
	})
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) { _ = r.opts.Self.Run(ctx) })

	// The object is made as soon as the state of the runtime is known, so that it is made Ready. It is followed before, so
	// that no deletion of it is missed.
	for _, first := range []<-chan struct{}{r.health.changed, r.opts.Self.Ready()} {
		select {
		case <-first:
		case <-ctx.Done():
			return nil
		}
	}
	last, _ := r.opts.Self.Get("", r.opts.Name)
	ready := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for failures := 0; ctx.Err() == nil; {
		node, err := r.publish(ctx, last)
		pause := r.heartbeat()
		switch {
		case err == nil:
			failures = 0
			if !ready && isReady(node) {
				ready = true
				r.announce()
			}
		case ctx.Err() != nil:
			return nil
		default:
			if failures++; failures == 1 {
				r.opts.Log.Warn("node not registered, will try again", "err", err)
			}
			if !ready && r.opts.Trouble != nil {
				r.opts.Trouble(err)
			}
			// After a restart on a full disk the object is there, and only its update is refused.
			if !ready && outOfSpace(err) && last != nil && isReady(last) {
				ready = true
				r.announce()
			}
			pause = pauseAfter(failures)
		}
		timer.Reset(min(pause, r.checkPause()))
		select {
		case <-timer.C:
			if _, fault := r.health.get(); fault != "" || r.opts.Owner != "" {
				r.health.set(ctx, r.opts.Runtime) // it may be ready now, or have lost its network
			}
		case <-r.health.changed:
		case <-seen: // the object was changed or deleted
		case <-ctx.Done():
		}
		last, _ = r.opts.Self.Get("", r.opts.Name)
	}
	return nil
}

// checkPause returns how long the health of the node may go without a check.
func (r *Registrar) checkPause() time.Duration {
	pause := time.Duration(math.MaxInt64)
	if _, fault := r.health.get(); fault != "" {
		pause = recheck
	}
	if left := r.health.tolerated(); left > 0 {
		pause = min(pause, left)
	}
	if r.opts.Owner != "" {
		pause = min(pause, r.opts.Config.NodeStatusUpdateFrequency.Duration)
	}
	return pause
}

// announce says that the node is ready.
func (r *Registrar) announce() {
	r.opts.Metrics.Ready(time.Now())
	close(r.ready)
	r.opts.Event(corev1.EventTypeNormal, "NodeReady", "Node %s status is now: NodeReady", r.opts.Name)
	for _, note := range r.health.noted() {
		r.opts.Event(corev1.EventTypeWarning, note.reason, "container runtime: %s", note.message)
	}
}

// outOfSpace reports whether the API server refused a write because its disk is full.
func outOfSpace(err error) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s) && s.Status().Code == http.StatusInsufficientStorage
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// publish creates or updates the Node object.
func (r *Registrar) publish(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	if node == nil {
		r.opts.Metrics.Attempt(time.Now())
		var err error
		node, err = client.Nodes.Get(ctx, r.opts.Client, "", r.opts.Name)
		if apierrors.IsNotFound(err) {
			node, err = client.Nodes.Create(ctx, r.opts.Client, r.initial(ctx))
			if err == nil {
				r.opts.Metrics.Create(time.Now())
				r.opts.Event(corev1.EventTypeNormal, "Starting", "")
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if patch := r.metadata(node); patch != nil {
		var err error
		if node, err = client.Nodes.Patch(ctx, r.opts.Client, "", r.opts.Name, types.MergePatchType, patch, ""); err != nil {
			return nil, err
		}
	}
	want := node.DeepCopy()
	r.status(ctx, &want.Status, time.Now())
	if equality.Semantic.DeepEqual(want.Status, node.Status) {
		return node, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID}, "status": nodeStatusFields(&want.Status)})
	if err != nil {
		return nil, err
	}
	return client.Nodes.Patch(ctx, r.opts.Client, "", r.opts.Name, types.StrategicMergePatchType, patch, "status")
}

// nodeStatusFields are the parts of the status that are the agent's.
func nodeStatusFields(s *corev1.NodeStatus) map[string]any {
	addresses := []any{map[string]string{"$patch": "replace"}}
	for _, a := range s.Addresses {
		addresses = append(addresses, a)
	}
	var conditions []map[string]any
	for _, c := range s.Conditions {
		conditions = append(conditions, map[string]any{
			"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message,
			"lastHeartbeatTime": c.LastHeartbeatTime, "lastTransitionTime": c.LastTransitionTime,
		})
	}
	return map[string]any{
		"addresses": addresses, "conditions": conditions,
		"capacity": s.Capacity, "allocatable": s.Allocatable,
		"daemonEndpoints": s.DaemonEndpoints, "nodeInfo": s.NodeInfo, "images": s.Images,
		"runtimeHandlers": s.RuntimeHandlers, "features": s.Features, "declaredFeatures": s.DeclaredFeatures, "volumesInUse": s.VolumesInUse,
	}
}

// Object is the Node object of a node that is not registered yet, without its status.
func (r *Registrar) Object() *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.opts.Name, Labels: r.labels()}}
	node.Spec.Taints, node.Spec.ProviderID = r.opts.Taints, r.opts.Config.ProviderID
	if r.opts.Drivers() {
		node.Annotations = map[string]string{volumefit.ManagedAttach: "true"}
	}
	return node
}

// initial is the Node object of a node that is not registered yet.
func (r *Registrar) initial(ctx context.Context) *corev1.Node {
	node := r.Object()
	if own := r.opts.PodCIDRs; len(own) > 0 {
		node.Spec.PodCIDR, node.Spec.PodCIDRs = own[0], own
	}
	r.status(ctx, &node.Status, time.Now())
	return node
}

func (r *Registrar) labels() map[string]string {
	l := map[string]string{
		corev1.LabelHostname: r.opts.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: r.opts.Arch(),
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": r.opts.Arch(),
	}
	maps.Copy(l, r.opts.Labels)
	return l
}

// metadata returns a merge patch that adds what the object lacks, or nil. It does not
// replace a pod CIDR that another client has set.
func (r *Registrar) metadata(node *corev1.Node) []byte {
	patch := map[string]any{}
	labels := map[string]string{}
	for k, v := range r.labels() {
		if node.Labels[k] != v {
			labels[k] = v
		}
	}
	meta := map[string]any{}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	if r.opts.Drivers() && node.Annotations[volumefit.ManagedAttach] != "true" {
		meta["annotations"] = map[string]string{volumefit.ManagedAttach: "true"}
	}
	if len(meta) > 0 {
		patch["metadata"] = meta
	}
	if own := r.opts.PodCIDRs; len(own) > 0 && node.Spec.PodCIDR == "" {
		patch["spec"] = map[string]any{"podCIDR": own[0], "podCIDRs": own}
	}
	if len(patch) == 0 {
		return nil
	}
	b, err := json.Marshal(patch)
	if err != nil {
		return nil // strings always encode
	}
	return b
}

// status brings s up to date. Its conditions get a new heartbeat only together
// with another change or when the last one is old.
func (r *Registrar) status(ctx context.Context, s *corev1.NodeStatus, now time.Time) {
	r.opts.Describe(s)
	if images, err := r.opts.Runtime.ListImages(ctx); err == nil {
		s.Images = imageList(images, int(*r.opts.Config.NodeStatusMaxImages))
	}
	conditions := []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	}
	for _, c := range r.opts.Pressure() {
		i := slices.IndexFunc(conditions, func(o corev1.NodeCondition) bool { return o.Type == c })
		conditions[i] = pressed(c)
	}
	known, fault := r.health.get()
	if r.opts.Closing() {
		fault = joined(fault, shuttingDown)
	}
	if !known || fault != "" {
		c := &conditions[3]
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "KubeletNotReady", fault
	}
	stamp := metav1.NewTime(now).Rfc3339Copy()
	for _, c := range conditions {
		c.LastTransitionTime, c.LastHeartbeatTime = stamp, stamp
		i := slices.IndexFunc(s.Conditions, func(o corev1.NodeCondition) bool { return o.Type == c.Type })
		if i < 0 {
			s.Conditions = append(s.Conditions, c)
			continue
		}
		old := s.Conditions[i]
		if old.Status != c.Status && c.Type != corev1.NodeReady {
			r.opts.Event(corev1.EventTypeNormal, pressureEvent(c), "Node %s status is now: %s", r.opts.Name, pressureEvent(c))
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
			if old.Reason == c.Reason && old.Message == c.Message && now.Sub(old.LastHeartbeatTime.Time) < r.heartbeat()-time.Second {
				c.LastHeartbeatTime = old.LastHeartbeatTime
			}
		}
		s.Conditions[i] = c
	}
}

// joined joins two faults as Kubernetes joins errors; either may be empty.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return "[" + strings.TrimSuffix(strings.TrimPrefix(a, "["), "]") + ", " + b + "]"
}

// pressed is the condition of a node that lacks something.
func pressed(t corev1.NodeConditionType) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: t, Status: corev1.ConditionTrue}
	switch t {
	case corev1.NodeMemoryPressure:
		c.Reason, c.Message = "KubeletHasInsufficientMemory", "kubelet has insufficient memory available"
	case corev1.NodePIDPressure:
		c.Reason, c.Message = "KubeletHasInsufficientPID", "kubelet has insufficient PID available"
	default:
		c.Reason, c.Message = "KubeletHasDiskPressure", "kubelet has disk pressure"
	}
	return c
}

// pressureEvent is the reason of the event about a change of a condition.
func pressureEvent(c corev1.NodeCondition) string {
	holds := c.Status == corev1.ConditionTrue
	switch {
	case c.Type == corev1.NodeMemoryPressure && holds:
		return "NodeHasInsufficientMemory"
	case c.Type == corev1.NodeMemoryPressure:
		return "NodeHasSufficientMemory"
	case c.Type == corev1.NodePIDPressure && holds:
		return "NodeHasInsufficientPID"
	case c.Type == corev1.NodePIDPressure:
		return "NodeHasSufficientPID"
	case holds:
		return "NodeHasDiskPressure"
	}
	return "NodeHasNoDiskPressure"
}

// imageList returns the largest images, at most a number of them unless that is negative.
func imageList(images []*cri.Image, most int) []corev1.ContainerImage {
	images = slices.SortedFunc(slices.Values(images), func(a, b *cri.Image) int {
		switch {
		case a.GetSize() != b.GetSize() && a.GetSize() > b.GetSize():
			return -1
		case a.GetSize() != b.GetSize():
			return 1
		}
		return slices.Compare(a.GetRepoTags(), b.GetRepoTags())
	})
	var list []corev1.ContainerImage
	if most >= 0 {
		images = images[:min(len(images), most)]
	}
	for _, i := range images {
		names := slices.Concat(i.GetRepoDigests(), i.GetRepoTags())
		if len(names) > 0 {
			list = append(list, corev1.ContainerImage{Names: names, SizeBytes: int64(i.GetSize())})
		}
	}
	return list
}
