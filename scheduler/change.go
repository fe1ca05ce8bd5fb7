package scheduler

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// podChanged hears of every change of a pod.
func (k *keeper) podChanged(before, after *corev1.Pod) {
	if before != nil && (after == nil || after.UID != before.UID) {
		k.gone(before)
	}
	switch {
	case after == nil:
	case ended(after):
		k.gone(after)
	case after.Spec.NodeName != "":
		k.hasNode(after)
	default:
		k.needsNode(before, after)
	}
}

// gone notes that a pod neither needs nor takes anything any more.
func (k *keeper) gone(pod *corev1.Pod) {
	if p := k.placed[pod.UID]; p != nil {
		k.seen(p)
		k.held.answer("", pod.UID, plugin.Refuse("the pod is gone"))
	}
	k.queue.drop(pod.UID)
	old, _, was := k.cluster.Snapshot.Placed(pod.UID)
	if k.cluster.Snapshot.Nomination(pod.UID) != "" {
		k.cluster.Nominate(&plugin.Pod{Pod: pod}, "")
	}
	if was {
		k.cluster.Unplace(pod.UID)
		k.happened(plugin.Change{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted, OldPod: old})
	}
}

// seen notes that the watch has told what became of a placement.
func (k *keeper) seen(p *placement) {
	if p.seen = true; p.done {
		k.forget(p)
	}
}

// hasNode notes that a pod has a node.
func (k *keeper) hasNode(pod *corev1.Pod) {
	change := plugin.Change{Resource: client.Pods.GroupVersionResource, Action: plugin.Added}
	if p := k.placed[pod.UID]; p != nil && !p.seen {
		k.seen(p)
	} else if old, node, ok := k.cluster.Snapshot.Placed(pod.UID); ok && node == pod.Spec.NodeName {
		change.Action = changeOf(old.Pod, pod)
		if change.Action == 0 {
			if p == nil || p.done {
				old.Pod = pod // so that the old state is not kept
			}
			return
		}
		change.OldPod = old
	}
	if it := k.queue.items[pod.UID]; it != nil {
		k.queue.take(it)
		k.queue.resolve(it, 2)
		k.queue.drop(pod.UID)
	}
	fresh := plugin.NewPod(pod)
	k.cluster.Place(fresh, pod.Spec.NodeName)
	change.Pod = fresh
	k.happened(change)
}

// changeOf returns what is different about a placed pod that plug-ins can look at.
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
		!equality.Semantic.DeepEqual(before.Spec.Resources, after.Spec.Resources) {
		a |= plugin.PodScaledDown
	}
	return a
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

// needsNode notes that a pod has no node. Before is what was known of it, or nil.
func (k *keeper) needsNode(before, pod *corev1.Pod) {
	it := k.queue.items[pod.UID]
	profile := k.profiles[pod.Spec.SchedulerName]
	if profile == nil || pod.DeletionTimestamp != nil { // S3
		if it != nil {
			k.gone(pod)
		}
		return
	}
	fresh := plugin.NewPod(pod)
	if it == nil {
		it = k.queue.add(fresh, profile)
		k.promise(it, nil)
		k.metrics.incoming("PodAdd")
		if k.admit(it) {
			k.queue.enqueue(it)
		}
		return
	}
	signature := profile.sign(it, fresh)
	same := it.signature == signature || it.signature == "" && profile.sign(it, it.Pod) == signature
	if k.placed[pod.UID] != nil {
		// The answer of the server is awaited. A later decision looks at the new object.
		it.changed = it.changed || !same
		it.Pod, it.signature = fresh, signature
		return
	}
	it.Pod, it.signature = fresh, signature
	k.promise(it, before)
	if same {
		return // its status, most likely because we wrote it
	}
	k.queue.take(it)
	k.queue.resolve(it, 1)
	if k.admit(it) {
		k.queue.enqueue(it)
	}
}

// promise notes what the watch tells of the node on which a pod has been promised room. Before is what it told
// last, or nil. What we promise or take back is known here first: a status that has stayed the same is older
// than that, and must not bring back what nobody would then take back again.
func (k *keeper) promise(it *item, before *corev1.Pod) {
	told, name, now := "", it.Status.NominatedNodeName, k.cluster.Snapshot.Nomination(it.UID)
	if before != nil {
		told = before.Status.NominatedNodeName
	}
	switch {
	case name != "" && name == now: // the pod is another object now
		k.cluster.Nominate(it.Pod, name)
	case name == told:
	case name == "" && told == now:
		k.cluster.Nominate(it.Pod, "")
	case now == "":
		k.cluster.Nominate(it.Pod, name)
	}
}

// ended reports whether a pod takes nothing of its node any more.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// nodeChanged hears of every change of a node.
func (k *keeper) nodeChanged(before, after *corev1.Node) {
	change := plugin.NodeChange(before, after)
	if after == nil {
		k.cluster.DropNode(before.Name)
	} else if n := k.cluster.Snapshot.Node(after.Name); n != nil && change.Action == 0 {
		n.Node = after // a heartbeat: nothing that anybody looks at
		return
	} else {
		k.cluster.SetNode(after)
	}
	k.happened(change)
}

func (k *keeper) namespaceChanged(before, after *corev1.Namespace) {
	change := plugin.Change{Resource: client.Namespaces.GroupVersionResource, Action: plugin.Updated}
	switch {
	case after == nil:
		k.cluster.DropNamespace(before.Name)
		change.Action, change.OldObject = plugin.Deleted, before
	case before != nil && maps.Equal(before.Labels, after.Labels):
		return
	default:
		k.cluster.SetNamespace(after.Name, after.Labels)
		if change.Object = after; before == nil {
			change.Action = plugin.Added
		} else {
			change.OldObject = before
		}
	}
	k.happened(change)
}

// objectChanged hears of every change of an object that plug-ins need.
func (k *keeper) objectChanged(r schema.GroupVersionResource, before, after client.Object) {
	change := plugin.Change{Resource: r, Action: plugin.Updated, OldObject: before, Object: after}
	switch {
	case after == nil:
		k.cluster.DropObject(r, before.GetNamespace(), before.GetName())
		change.Action = plugin.Deleted
	case before == nil:
		change.Action = plugin.Added
		fallthrough
	default:
		k.cluster.SetObject(r, after)
	}
	k.happened(change)
}
