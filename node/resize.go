package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/lifecycle"
)

// Resize in place: a change of the resources of a pod through the subresource resize is granted by the node, if its
// free resources suffice, and then applied to each running container by the runtime. The granted and applied resources
// are in the status of the pod, from which another agent goes on. It compares the status with the report of the
// runtime, because the agent before it may have ended between applying and reporting.

// adoptResources restores the granted and applied resources from the status of a pod. Containers that do not run get those
// of the specification.
func (w *worker) adoptResources(pod *corev1.Pod) {
	r := &w.view.Memory.Resize
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if s := &list[i]; s.Resources != nil && s.State.Running != nil {
				r.Allocated[s.Name] = *s.Resources
			}
		}
	}
	lifecycle.EachResizable(pod, func(c *corev1.Container) {
		if _, known := r.Allocated[c.Name]; !known {
			r.Allocated[c.Name] = c.Resources
		}
	})
	r.Whole = adoptedWhole(pod)
	r.Enforced = r.Whole
}

// adoptApplied finds out the resources of the running containers that the worker has not started itself: the resources
// in the status of the pod, if the runtime reports these, too, or the granted ones, if the agent was ended between
// applying and reporting them. Otherwise the status counts, and the runtime applies the granted resources once more.
func (w *worker) adoptApplied() {
	r := &w.view.Memory.Resize
	var found []*lifecycle.Container
	for i := range w.view.Containers {
		c := &w.view.Containers[i]
		if _, known := r.Applied[c.ID]; !known && c.State == lifecycle.Running && !w.starts(c.Name) {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return
	}
	granted, reported := map[string]*corev1.Container{}, reportedResources(&w.view.Last)
	lifecycle.EachResizable(w.view.Granted(), func(c *corev1.Container) { granted[c.Name] = c })
	for _, c := range found {
		if spec := granted[c.Name]; spec != nil {
			var known bool
			r.Applied[c.ID], known = w.appliedTo(c, spec, reported[c.ID])
			if !known {
				r.Unsure[c.ID] = true
			}
		}
	}
	w.resize.begun = w.resize.begun || w.view.Resizing()
}

// appliedTo returns the resources with which a running container runs, and whether the runtime reports these: the
// resources in the status of the pod, which are nil if it has none, or those granted.
func (w *worker) appliedTo(c *lifecycle.Container, granted *corev1.Container, reported *corev1.ResourceRequirements) (corev1.ResourceRequirements, bool) {
	r := &w.view.Memory.Resize
	has := func(resources corev1.ResourceRequirements, whole *corev1.ResourceRequirements) bool {
		pod, of := *w.view.Pod, *granted
		pod.Spec.Resources, of.Resources = whole, resources
		return c.Limits != nil && *c.Limits == criclient.LimitsOf(crispec.Resources(&pod, lifecycle.ClassOf(&pod), &of, w.n.spec(w.uid, c.Name)))
	}
	now := lifecycle.Effective(granted.Resources, r.Whole)
	if reported == nil {
		return now, has(granted.Resources, r.Whole)
	}
	before := lifecycle.Effective(*reported, r.Enforced)
	switch {
	case has(*reported, r.Enforced):
		return before, true
	case has(granted.Resources, r.Whole):
		return now, true
	}
	return before, false
}

// starts reports whether an attempt at a container is being made.
func (w *worker) starts(container string) bool {
	for _, op := range w.busy {
		if op.starts[container] {
			return true
		}
	}
	return false
}

// reportedResources returns the resources of the running containers that a status has, by container ID.
func reportedResources(s *corev1.PodStatus) map[string]*corev1.ResourceRequirements {
	all := map[string]*corev1.ResourceRequirements{}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range list {
			if _, id, ok := strings.Cut(list[i].ContainerID, "://"); ok && list[i].State.Running != nil && list[i].Resources != nil {
				all[id] = list[i].Resources
			}
		}
	}
	return all
}

// adoptedWhole returns the resources of a pod as a whole that its status reports, which also has those of its containers.
func adoptedWhole(pod *corev1.Pod) *corev1.ResourceRequirements {
	if pod.Spec.Resources == nil || pod.Status.Resources == nil {
		return pod.Spec.Resources
	}
	of := func(spec, status corev1.ResourceList) corev1.ResourceList {
		list := maps.Clone(spec)
		for name := range spec {
			if q, reported := status[name]; reported {
				q.Sub(pod.Spec.Overhead[name])
				list[name] = q
			}
		}
		return list
	}
	return &corev1.ResourceRequirements{
		Requests: of(pod.Spec.Resources.Requests, pod.Status.Resources.Requests), Limits: of(pod.Spec.Resources.Limits, pod.Status.Resources.Limits),
	}
}

// allocate asks the node for the resources of the specification, if it has granted other ones.
func (w *worker) allocate() {
	r, pod := &w.view.Memory.Resize, w.view.Pod
	same := lifecycle.SameWhole(r.Whole, pod.Spec.Resources)
	lifecycle.EachResizable(pod, func(c *corev1.Container) {
		same = same && lifecycle.SameResources(r.Allocated[c.Name], c.Resources)
	})
	if ends := w.view.Finished() || w.view.Deleting(); same || ends {
		if r.Pending != (lifecycle.Verdict{}) {
			w.n.capacity.Withdraw(w.uid, w.view.Granted(), ends)
		}
		r.Pending = lifecycle.Verdict{}
		return
	}
	pending := lifecycle.Verdict{Reason: corev1.PodReasonDeferred}
	refusal := w.unresizable()
	if refusal != nil {
		w.n.capacity.Withdraw(w.uid, w.view.Granted(), false)
		pending.Reason = corev1.PodReasonInfeasible
	} else {
		refusal = w.n.capacity.Regrant(w.uid, pod, w.view.Granted(), w.n.object(), time.Now())
	}
	if refusal != nil {
		pending.Message = refusal.Message
		if r.Pending != pending {
			r.Pending = pending
			w.event(corev1.EventTypeWarning, "Resize"+pending.Reason, "Pod resize %s: %s", pending.Reason, resizeSummary(pod, refusal.Message))
		}
		return
	}
	lifecycle.EachResizable(pod, func(c *corev1.Container) { r.Allocated[c.Name] = c.Resources })
	r.Whole = pod.Spec.Resources
	if len(w.view.Sandboxes) == 0 {
		r.Enforced = r.Whole // there is no cgroup yet
	}
	r.Pending, r.Error, r.Retry = lifecycle.Verdict{}, "", time.Time{}
	if w.view.Resizing() {
		w.resize.begun = true
		w.event(corev1.EventTypeNormal, "ResizeStarted", "Pod resize started: %s", resizeSummary(pod, ""))
	}
}

// resized reports the end of a resize in an event.
func (w *worker) resized() {
	if w.resize.begun && !w.view.Resizing() {
		w.resize.begun = false
		w.event(corev1.EventTypeNormal, "ResizeCompleted", "Pod resize completed: %s", resizeSummary(w.view.Pod, ""))
	}
}

// resizeSummary is the end of the messages about a resize, as upstream's kubelet has it.
func resizeSummary(pod *corev1.Pod, failure string) string {
	type container struct {
		Name      string                      `json:"name"`
		Resources corev1.ResourceRequirements `json:"resources"`
	}
	summary := struct {
		InitContainers []container `json:"initContainers,omitempty"`
		Containers     []container `json:"containers,omitempty"`
		Generation     int64       `json:"generation"`
		Error          string      `json:"error,omitempty"`
	}{Generation: pod.Generation, Error: failure}
	for i := range pod.Spec.InitContainers {
		summary.InitContainers = append(summary.InitContainers, container{pod.Spec.InitContainers[i].Name, pod.Spec.InitContainers[i].Resources})
	}
	for i := range pod.Spec.Containers {
		summary.Containers = append(summary.Containers, container{pod.Spec.Containers[i].Name, pod.Spec.Containers[i].Resources})
	}
	b, err := json.Marshal(summary)
	if err != nil {
		return "" // quantities always encode
	}
	return string(b)
}

// apply has the runtime apply the granted resources to a running container.
func (w *worker) apply(a lifecycle.Action, now time.Time) {
	pod := w.view.Granted()
	c, _ := lifecycle.Spec(pod, a.Container)
	qos := lifecycle.ClassOf(pod)
	asked := crispec.Resources(pod, qos, c, w.n.spec(w.uid, c.Name))
	applied := lifecycle.Effective(c.Resources, pod.Spec.Resources)
	during, after := w.between(""), w.between(c.Name)
	before, limit := w.view.Memory.Resize.Applied[a.ID], asked.GetMemoryLimitInBytes()
	w.begin(a, now, func(ctx context.Context) func() {
		var err error
		began := time.Now()
		if shrinks(before.Limits.Memory().Value(), limit) {
			err = w.n.checkContainerUsage(ctx, a, limit)
		}
		if err == nil {
			err = w.n.limit(during, qos)
		}
		if err == nil {
			err = w.n.opts.Runtime.UpdateContainerResources(ctx, a.ID, asked)
		}
		if err == nil {
			err = w.n.limit(after, qos)
		}
		return w.endResize(ctx, began, err, func(r *lifecycle.Resize) {
			r.Applied[a.ID] = applied
			delete(r.Unsure, a.ID)
		})
	})
}

// enforce sets the granted resources of the pod as a whole in its cgroup.
func (w *worker) enforce(a lifecycle.Action, now time.Time) {
	pod, during := w.view.Granted(), w.between("")
	before := crispec.PodResources(during, lifecycle.ClassOf(during)).GetMemoryLimitInBytes()
	limit := crispec.PodResources(pod, lifecycle.ClassOf(pod)).GetMemoryLimitInBytes()
	w.begin(a, now, func(ctx context.Context) func() {
		var err error
		began := time.Now()
		if shrinks(before, limit) {
			err = w.n.checkPodUsage(ctx, pod, limit)
		}
		if err == nil {
			err = w.n.limit(pod, lifecycle.ClassOf(pod))
		}
		return w.endResize(ctx, began, err, func(r *lifecycle.Resize) { r.Enforced = pod.Spec.Resources })
	})
}

// endResize counts an operation that applied granted resources, and returns its end: that records them with set, or the
// failure err.
func (w *worker) endResize(ctx context.Context, began time.Time, err error, set func(r *lifecycle.Resize)) func() {
	if ctx.Err() == nil {
		w.n.metrics.Resizes.Applied(began, err)
	}
	return func() {
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.notResized(err)
			return
		}
		r := &w.view.Memory.Resize
		set(r)
		r.Error, r.Retry = "", time.Time{}
	}
}

// shrinks reports whether a limit of memory falls; 0 means none.
func shrinks(before, after int64) bool { return after > 0 && (before == 0 || after < before) }

// checkContainerUsage returns an error if a container uses more memory than a new limit allows. Cgroup v2 would end its processes.
// The check and the words are those of upstream's kubelet: usage can grow after it.
func (n *Node) checkContainerUsage(ctx context.Context, a lifecycle.Action, limit int64) error {
	list, err := n.opts.Runtime.ListContainerStats(ctx, &cri.ContainerStatsFilter{Id: a.ID})
	if err != nil {
		return fmt.Errorf("unable to read memory usage for container %q: %w", a.Container, err)
	}
	for _, s := range list {
		if used := s.GetMemory().GetUsageBytes().GetValue(); used >= uint64(limit) {
			return fmt.Errorf("cannot decrease memory limits: attempting to set container %q memory limit (%d) below current usage (%d)", a.Container, limit, used)
		}
	}
	return nil
}

// checkPodUsage is checkContainerUsage for the limit of a pod as a whole.
func (n *Node) checkPodUsage(ctx context.Context, pod *corev1.Pod, limit int64) error {
	list, err := n.opts.Runtime.ListPodSandboxStats(ctx, &cri.PodSandboxStatsFilter{LabelSelector: map[string]string{crispec.PodUID: string(pod.UID)}})
	if err != nil {
		return fmt.Errorf("unable to read memory usage for pod \"%s_%s(%s)\": %w", pod.Name, pod.Namespace, pod.UID, err)
	}
	for _, s := range list {
		if used := s.GetLinux().GetMemory().GetUsageBytes().GetValue(); used >= uint64(limit) {
			return fmt.Errorf("cannot decrease memory limits: attempting to set pod memory limit (%d) below current usage (%d)", limit, used)
		}
	}
	return nil
}

// notResized reports that granted resources could not be applied. They are tried again.
func (w *worker) notResized(err error) {
	r := &w.view.Memory.Resize
	r.Error, r.Retry = criclient.Message(err), time.Now().Add(retryPause)
	w.event(corev1.EventTypeWarning, "ResizeError", "Pod resize error: %s", resizeSummary(w.view.Pod, r.Error))
}

// between returns the pod as its cgroup has to allow it in the middle of a resize: each container has the larger of its old and
// its new resources, and so has the pod as a whole. The container called done has its new ones.
func (w *worker) between(done string) *corev1.Pod {
	r, pod := &w.view.Memory.Resize, w.view.Pod.DeepCopy()
	pod.Spec.Resources = r.Whole
	if r.Whole != nil && r.Enforced != nil {
		whole := larger(*r.Whole, *r.Enforced)
		pod.Spec.Resources = &whole
	}
	old := map[string]corev1.ResourceRequirements{}
	for _, c := range w.view.Containers {
		if have, ok := r.Applied[c.ID]; ok && c.State == lifecycle.Running && c.Name != done {
			old[c.Name] = have
		}
	}
	lifecycle.EachResizable(pod, func(c *corev1.Container) {
		c.Resources = r.Allocated[c.Name]
		if have, ok := old[c.Name]; ok {
			c.Resources = larger(c.Resources, have)
		}
	})
	return pod
}

// larger returns the larger of each request and limit. What one of the two does not limit is not limited.
func larger(a, b corev1.ResourceRequirements) corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Requests: maps.Clone(a.Requests), Limits: corev1.ResourceList{}}
	for name, q := range b.Requests {
		if mine, ok := out.Requests[name]; !ok || mine.Cmp(q) < 0 {
			if out.Requests == nil {
				out.Requests = corev1.ResourceList{}
			}
			out.Requests[name] = q
		}
	}
	for name, q := range a.Limits {
		if other, ok := b.Limits[name]; ok {
			if q.Cmp(other) < 0 {
				q = other
			}
			out.Limits[name] = q
		}
	}
	return out
}

// limit sets the limits of a pod's cgroup, if the node has such.
func (n *Node) limit(pod *corev1.Pod, qos corev1.PodQOSClass) error {
	return n.setCgroup(pod, qos, n.metrics.CgroupUpdate)
}

// setCgroup sets the limits of a pod's cgroup, which is made if necessary. The operation is measured as one that took says.
func (n *Node) setCgroup(pod *corev1.Pod, qos corev1.PodQOSClass, took prometheus.Observer) error {
	if n.isolation.cgroups == nil {
		return nil
	}
	limits := crispec.PodResources(pod, qos)
	limits.Unified = n.machine.qos.Pod(pod)
	if n.machine.noQuota || n.capacity.Pins(pod.UID) {
		limits.CpuPeriod, limits.CpuQuota = 0, 0
	}
	began := time.Now()
	defer func() { took.Observe(time.Since(began).Seconds()) }()
	return n.isolation.cgroups.Set(pod.UID, qos, limits, n.machine.qos.Protected(pod, qos))
}
