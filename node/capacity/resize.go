package capacity

import (
	"cmp"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/sampan-io/sampan/internal/podresources"
	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/metrics"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// A deferral is a resize for which the node lacks resources.
type deferral struct {
	wanted, granted *corev1.Pod // the pod with the resources of its specification, and with those it has
	since           time.Time
}

// before orders resizes that wait for resources as kubelet does: resizes that ask for nothing more first, then by the priority of the
// pod, then Guaranteed pods first, then the longest wait first.
func (d *deferral) before(e *deferral) int {
	later := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	other := func(d *deferral) bool { return lifecycle.ClassOf(d.wanted) != corev1.PodQOSGuaranteed }
	return cmp.Or(
		cmp.Compare(later(d.increases()), later(e.increases())), cmp.Compare(corev1helpers.PodPriority(e.wanted), corev1helpers.PodPriority(d.wanted)),
		cmp.Compare(later(other(d)), later(other(e))), d.since.Compare(e.since),
	)
}

// increases reports whether the pod asks for more than it has.
func (d *deferral) increases() bool {
	wanted := podresources.Requests(d.wanted, podresources.Options{})
	granted := podresources.Requests(d.granted, podresources.Options{})
	return wanted.Memory().Cmp(*granted.Memory()) > 0 || wanted.Cpu().Cmp(*granted.Cpu()) > 0
}

// deferredSince returns since when the status of a pod has said that its resize waits; now if it does not say so. Another agent may
// have written it.
func deferredSince(s *corev1.PodStatus, now time.Time) time.Time {
	for _, c := range s.Conditions {
		if c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonDeferred && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}
	return now
}

// Regrant counts a pod with the resources of its specification in place of those granted before, if the node has them.
// Otherwise it returns why not, and the pod is tried again when another one has freed resources: because it ended, or
// by a resize. It has waited since now, unless its status says since when.
func (l *Ledger) Regrant(uid types.UID, pod, granted *corev1.Pod, node *corev1.Node, now time.Time) *lifecycle.Rejection {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken.SetNode(node)
	d := &deferral{bySpec(pod), bySpec(granted), deferredSince(&pod.Status, now)}
	refusal := l.exchange(uid, d)
	earlier := l.deferred[uid]
	if earlier != nil {
		d.since = earlier.since
	}
	if refusal == nil {
		if earlier != nil {
			l.granted(d, metrics.PodUpdated)
		}
		delete(l.deferred, uid)
		l.retryDeferred(metrics.PodResized)
		return nil
	}
	l.deferred[uid] = d
	return refusal
}

// bySpec returns a pod without what its status says about its resources.
func bySpec(pod *corev1.Pod) *corev1.Pod {
	p := *pod
	p.Status.InitContainerStatuses, p.Status.ContainerStatuses = nil, nil
	p.Status.Resources, p.Status.AllocatedResources = nil, nil
	return &p
}

// Withdraw ends the deferral of a pod that does not want other resources any more. A pod that ends is counted as it is until it
// frees its resources.
func (l *Ledger) Withdraw(uid types.UID, granted *corev1.Pod, ends bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.deferred[uid]; d != nil {
		resolution := metrics.WaitReverted
		if ends {
			resolution = metrics.WaitTerminated
		}
		l.node.Metrics.Resizes.Waited(d.wanted, d.since, resolution)
		delete(l.deferred, uid)
	}
	if !ends {
		l.taken.Unplace(uid)
		l.taken.Place(plugin.NewPod(bySpec(granted)), l.node.Name)
		l.retryDeferred(metrics.PodUpdated)
	}
}

// exchange counts a pod with the resources that it wants, or if the node does not have them with those it has. The caller holds mu.
func (l *Ledger) exchange(uid types.UID, d *deferral) *lifecycle.Rejection {
	l.taken.Unplace(uid)
	counted := plugin.NewPod(d.wanted)
	refusal := lifecycle.Fits(counted, l.taken.Snapshot.Node(l.node.Name))
	if refusal != nil {
		counted = plugin.NewPod(d.granted)
	}
	l.taken.Place(counted, l.node.Name)
	return refusal
}

// freed ends the count of a pod, and grants resizes that have waited for that. The caller holds mu.
func (l *Ledger) freed(uid types.UID, by metrics.FreedBy) {
	l.taken.Unplace(uid)
	if d := l.deferred[uid]; d != nil {
		l.node.Metrics.Resizes.Waited(d.wanted, d.since, metrics.WaitTerminated)
		delete(l.deferred, uid)
	}
	l.retryDeferred(by)
}

// granted counts a resize that was granted after it had waited.
func (l *Ledger) granted(d *deferral, by metrics.FreedBy) {
	l.node.Metrics.Resizes.Accepted.WithLabelValues(string(by)).Inc()
	l.node.Metrics.Resizes.Waited(d.wanted, d.since, metrics.WaitAccepted)
}

// retryDeferred counts pods whose resize was deferred with the resources that they want, in order, as far as the node has them now,
// and has their workers go on. The caller holds mu.
func (l *Ledger) retryDeferred(by metrics.FreedBy) {
	order := sorting.Sorted(maps.Keys(l.deferred), func(a, b types.UID) int {
		return cmp.Or(l.deferred[a].before(l.deferred[b]), cmp.Compare(a, b))
	})
	for _, uid := range order {
		pod := l.pods[uid]
		if pod == nil || l.exchange(uid, l.deferred[uid]) != nil {
			continue
		}
		l.granted(l.deferred[uid], by)
		delete(l.deferred, uid)
		pod.Regrant()
	}
}
