package plugin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
)

// An Action says what happened to an object. Several can be or-ed together.
type Action uint16

// The actions. The first three are for every resource; the others distinguish updates of pods and nodes. An update of
// another resource is Updated.
const (
	Added Action = 1 << iota
	Updated
	Deleted

	NodeAllocatable // a node has other amounts of resources
	NodeLabels      // a node has other labels
	NodeTaints      // a node has other taints, or was cordoned or uncordoned
	NodeOther       // a node has other annotations, conditions, images or features

	PodLabels     // a placed pod has other labels
	PodScaledDown // a placed pod asks for less
	PodDying      // the deletion of a placed pod was asked for

	// AnyNodeUpdate and AnyPodUpdate are all that can happen to one that stays.
	AnyNodeUpdate = NodeAllocatable | NodeLabels | NodeTaints | NodeOther
	AnyPodUpdate  = PodLabels | PodScaledDown | PodDying
)

// A Change is something that happened in the cluster. Pods in it are placed ones: Added
// when they got their node, Deleted when they ended. The state before or after is
// nil if there is none.
type Change struct {
	Resource schema.GroupVersionResource
	Action   Action

	OldPod, Pod       *Pod
	OldNode, Node     *corev1.Node
	OldObject, Object client.Object // of another resource
}

// A Hint says that a change can make pods fit that the plug-in refused.
type Hint struct {
	Resource schema.GroupVersionResource // client.Pods.GroupVersionResource, …
	Action   Action                      // any of these

	// Helps reports whether the change can make the pod fit, as far as this plug-in is
	// concerned. Of the pod it looks at the part its [Signature] covers: pods that are equal so
	// far are asked about once. Nil means that it always can.
	Helps func(pod *Pod, c Change) bool
}

// A Hinter is a plug-in that says which changes can help pods that it refused (queueing hints).
// Changes of the refused pod itself need no hint. Pods refused by a plug-in that is no
// Hinter are tried again after any change.
type Hinter interface {
	Plugin

	// Hints must be the same at every call; none means that nothing but a change of
	// the pod helps.
	Hints() []Hint
}

// Helps reports whether one of the hints says that the change can make the pod fit.
func Helps(h Hinter, pod *Pod, c Change) bool {
	for _, hint := range h.Hints() {
		if hint.Resource == c.Resource && hint.Action&c.Action != 0 && (hint.Helps == nil || hint.Helps(pod, c)) {
			return true
		}
	}
	return false
}

// NodeChange returns what happened to a node, whose states are not both nil. The Action is 0 if nothing
// changed that plug-ins can look at, as in a heartbeat.
func NodeChange(before, after *corev1.Node) Change {
	c := Change{Resource: client.Nodes.GroupVersionResource, OldNode: before, Node: after}
	switch {
	case before == nil:
		c.Action = Added
	case after == nil:
		c.Action = Deleted
	default:
		mark := func(same bool, a Action) {
			if !same {
				c.Action |= a
			}
		}
		equal := equality.Semantic.DeepEqual
		mark(equal(before.Status.Allocatable, after.Status.Allocatable), NodeAllocatable)
		mark(equal(before.Labels, after.Labels), NodeLabels)
		mark(before.Spec.Unschedulable == after.Spec.Unschedulable && equal(before.Spec.Taints, after.Spec.Taints), NodeTaints)
		mark(equal(before.Annotations, after.Annotations) && equal(before.Status.Images, after.Status.Images) &&
			equal(before.Status.DeclaredFeatures, after.Status.DeclaredFeatures) && sameConditions(before, after), NodeOther)
	}
	return c
}

// sameConditions compares what conditions say, not when they were looked at.
func sameConditions(a, b *corev1.Node) bool {
	return slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, func(a, b corev1.NodeCondition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
	})
}
