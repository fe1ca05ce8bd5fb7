package scheduler

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// part is the name of the scheduler in marks.
const part = "scheduler"

// podChanged handles every change of a pod.
func (l *loop) podChanged(before, after *corev1.Pod) {
	if after != nil {
		end, ok := l.opts.Quarantine.Begin(part, after)
		if !ok {
			l.gone(after)
			return
		}
		defer end()
	} else {
		l.opts.Quarantine.Forget(part, before.Namespace, before.Name)
	}
	if before != nil && (after == nil || after.UID != before.UID) {
		l.gone(before)
	}
	switch {
	case after == nil:
	case podstate.Finished(after):
		l.gone(after)
	case after.Spec.NodeName != "":
		l.hasNode(after)
	default:
		l.needsNode(before, after)
	}
}

// gone notes that a pod neither needs nor takes anything any more.
func (l *loop) gone(pod *corev1.Pod) {
	if p := l.placed[pod.UID]; p != nil {
		l.seen(p)
		l.held.answer("", pod.UID, plugin.Refuse("the pod is gone"))
	}
	l.queue.drop(pod.UID)
	old, _, was := l.cluster.Snapshot.Placed(pod.UID)
	if l.cluster.Snapshot.Nomination(pod.UID) != "" {
		l.cluster.Nominate(&plugin.Pod{Pod: pod}, "")
	}
	if was {
		l.cluster.Unplace(pod.UID)
		l.happened(plugin.Change{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted, OldPod: old})
	}
}

// seen records that the watch has reported the result of a placement.
func (l *loop) seen(p *placement) {
	if p.seen = true; p.done {
		l.forget(p)
	}
}

// hasNode notes that a pod has a node.
func (l *loop) hasNode(pod *corev1.Pod) {
	change := plugin.Change{Resource: client.Pods.GroupVersionResource, Action: plugin.Added}
	if p := l.placed[pod.UID]; p != nil && !p.seen {
		l.seen(p)
	} else if old, node, ok := l.cluster.Snapshot.Placed(pod.UID); ok && node == pod.Spec.NodeName {
		change.Action = changeOf(old.Pod, pod)
		if change.Action == 0 {
			if p == nil || p.done {
				old.Pod = pod // so that the old state is not kept
			}
			return
		}
		change.OldPod = old
	}
	if it := l.queue.items[pod.UID]; it != nil {
		l.queue.take(it)
		l.queue.resolve(it, 2)
		l.queue.drop(pod.UID)
	}
	fresh := plugin.NewPod(pod)
	l.cluster.Place(fresh, pod.Spec.NodeName)
	change.Pod = fresh
	l.happened(change)
}

// changeOf returns the differences of a placed pod that plug-ins can look at.
func changeOf(before, after *corev1.Pod) plugin.Action {
	var a plugin.Action
	if !maps.Equal(before.Labels, after.Labels) {
		a |= plugin.PodLabels
	}
	if (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) {
		a |= plugin.PodDying
	}
	same := func(b, a corev1.Container) bool { return sameAmounts(b.Resources.Requests, a.Resources.Requests) }
	if !slices.EqualFunc(before.Spec.Containers, after.Spec.Containers, same) || !slices.EqualFunc(before.Spec.InitContainers, after.Spec.InitContainers, same) ||
		!equality.Semantic.DeepEqual(before.Spec.Resources, after.Spec.Resources) ||
		!sameAmounts(before.Status.AllocatedResources, after.Status.AllocatedResources) || !sameAmounts(applied(before), applied(after)) {
		a |= plugin.PodScaledDown
	}
	return a
}

// applied returns the requests of a pod that its node has applied.
func applied(pod *corev1.Pod) corev1.ResourceList {
	if pod.Status.Resources == nil {
		return nil
	}
	return pod.Status.Resources.Requests
}

func sameAmounts(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, x := range a {
		if y, ok := b[name]; !ok || x.Cmp(y) != 0 {
			return false
		}
	}
	return true
}

// needsNode notes that a pod has no node. Before is its last state, or nil.
func (l *loop) needsNode(before, pod *corev1.Pod) {
	it := l.queue.items[pod.UID]
	profile := l.profiles[pod.Spec.SchedulerName]
	if profile == nil || pod.DeletionTimestamp != nil { // scheduler-S3
		if it != nil {
			l.gone(pod)
		}
		return
	}
	fresh := plugin.NewPod(pod)
	if it == nil {
		it = l.queue.add(fresh, profile)
		l.promise(it, nil)
		l.metrics.incoming("PodAdd")
		if l.admit(it) {
			l.queue.enqueue(it)
		}
		return
	}
	signature := profile.sign(it, fresh)
	same := it.signature == signature || it.signature == "" && profile.sign(it, it.Pod) == signature
	if l.placed[pod.UID] != nil {
		// The answer of the server is awaited. A later decision looks at the new object.
		it.changed = it.changed || !same
		it.Pod, it.signature = fresh, signature
		return
	}
	it.Pod, it.signature = fresh, signature
	l.promise(it, before)
	if same {
		return // its status, most likely because we wrote it
	}
	l.queue.take(it)
	l.queue.resolve(it, 1)
	if l.admit(it) {
		l.queue.enqueue(it)
	}
}

// promise updates the nominated node of a pod from its status. Before is the previous state of the pod in the watch, or nil.
// The scheduler knows its own nominations before the watch does. A status.nominatedNodeName that has not changed is
// therefore older than they are, and must not restore a nomination that the scheduler has taken back.
func (l *loop) promise(it *item, before *corev1.Pod) {
	told, name, now := "", it.Status.NominatedNodeName, l.cluster.Snapshot.Nomination(it.UID)
	if before != nil {
		told = before.Status.NominatedNodeName
	}
	switch {
	case name != "" && name == now: // the pod is another object now
		l.cluster.Nominate(it.Pod, name)
	case name == told:
	case name == "" && told == now:
		l.cluster.Nominate(it.Pod, "")
	case now == "":
		l.cluster.Nominate(it.Pod, name)
	}
}

// nodeChanged handles every change of a node.
func (l *loop) nodeChanged(before, after *corev1.Node) {
	change := plugin.NodeChange(before, after)
	if after == nil {
		l.cluster.DropNode(before.Name)
	} else if n := l.cluster.Snapshot.Node(after.Name); n != nil && change.Action == 0 {
		n.Node = after // a heartbeat: plug-ins do not look at it
		return
	} else {
		l.cluster.SetNode(after)
	}
	l.happened(change)
}

func (l *loop) namespaceChanged(before, after *corev1.Namespace) {
	change := plugin.Change{Resource: client.Namespaces.GroupVersionResource, Action: plugin.Updated}
	switch {
	case after == nil:
		l.cluster.DropNamespace(before.Name)
		change.Action, change.OldObject = plugin.Deleted, before
	case before != nil && maps.Equal(before.Labels, after.Labels):
		return
	default:
		l.cluster.SetNamespace(after.Name, after.Labels)
		if change.Object = after; before == nil {
			change.Action = plugin.Added
		} else {
			change.OldObject = before
		}
	}
	l.happened(change)
}

// objectChanged hears of every change of an object that plug-ins need.
func (l *loop) objectChanged(r schema.GroupVersionResource, before, after client.Object) {
	change := plugin.Change{Resource: r, Action: plugin.Updated, OldObject: before, Object: after}
	switch {
	case after == nil:
		l.cluster.DropObject(r, before.GetNamespace(), before.GetName())
		change.Action = plugin.Deleted
	case before == nil:
		change.Action = plugin.Added
		fallthrough
	default:
		l.cluster.SetObject(r, after)
	}
	l.happened(change)
}
