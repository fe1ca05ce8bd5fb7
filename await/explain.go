package await

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
)

// fewMembers is the largest number of members whose parts are watched with one selector per member. Beyond it, one watch
// of the whole namespace costs less.
const fewMembers = 8

// The resources between a controller and its pods.
var (
	replicaSets = appsv1.SchemeGroupVersion.WithResource("replicasets")
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// lookInto follows the objects that can explain why a member is not done: once per generation of the member, since its
// selector may have changed.
func (w *watcher) lookInto(m *member) {
	n := m.node
	if n == nil || w.req.For.has(Created) || m.looked && m.lookedAt == n.count {
		return
	}
	m.looked, m.lookedAt, m.looks = true, n.count, nil
	namespace := n.namespace
	if m.target.Name == "" && m.feed.namespace == "" {
		namespace = ""
	}
	many := len(w.members) > fewMembers
	// Old pods and their replica sets are found by owner references, because they may have
	// none of the labels that the selector asks for now.
	byOwner := w.req.For.has(OldGone)
	follow := func(r schema.GroupVersionResource, selector, fields string) {
		m.looks = append(m.looks, w.explain(source{GroupVersionResource: r, namespace: namespace, labels: selector, fields: fields}))
	}
	selected := func(selector string) string {
		if many || byOwner {
			return ""
		}
		return selector
	}
	pods := client.Pods.GroupVersionResource
	events := "type=" + corev1.EventTypeWarning
	if w.req.For.needsSlices() && n.isServed() {
		follow(client.Services.GroupVersionResource, "", "")
		m.services = m.looks[len(m.looks)-1]
	}
	if n.isPod() {
		if w.req.For.needsSlices() {
			follow(client.EndpointSlices.GroupVersionResource, discoveryv1.LabelServiceName, "")
		}
		follow(client.Events.GroupVersionResource, "", events)
		return
	}
	switch o := n.object.(type) {
	case *corev1.ReplicationController:
		follow(pods, selected(labels.SelectorFromSet(o.Spec.Selector).String()), "")
	case *appsv1.ReplicaSet:
		follow(pods, selected(text(o.Spec.Selector)), "")
	case *appsv1.Deployment:
		follow(replicaSets, selected(text(o.Spec.Selector)), "")
		follow(pods, selected(text(o.Spec.Selector)), "")
	case *appsv1.StatefulSet:
		follow(pods, selected(text(o.Spec.Selector)), "")
	case *appsv1.DaemonSet:
		follow(pods, selected(text(o.Spec.Selector)), "")
	case *batchv1.Job:
		follow(pods, selected(text(o.Spec.Selector)), "")
	case *batchv1.CronJob: // its jobs may have any labels; their pods have this one
		follow(client.Jobs.GroupVersionResource, "", "")
		follow(pods, selected(batchv1.JobNameLabel), "")
	case *corev1.Service:
		if w.req.For.has(Deleted) || len(o.Spec.Selector) == 0 {
			break
		}
		if m.blind = many; many {
			follow(client.EndpointSlices.GroupVersionResource, discoveryv1.LabelServiceName, "")
		} else {
			follow(client.EndpointSlices.GroupVersionResource, discoveryv1.LabelServiceName+"="+o.Name, "")
			m.looks = append(m.looks, w.explain(source{
				GroupVersionResource: pods, namespace: o.Namespace, labels: labels.SelectorFromSet(o.Spec.Selector).String(), of: o.UID,
			}))
		}
	case *corev1.Namespace:
		if w.req.For.has(Deleted) { // the pods that are left in it
			m.looks = append(m.looks, w.explain(source{GroupVersionResource: pods, namespace: o.Name, of: o.UID}))
		}
		return
	case *corev1.PersistentVolumeClaim: // "no pod uses it yet" is a normal event
		events = "involvedObject.kind=PersistentVolumeClaim"
	}
	if w.req.For.needsSlices() {
		follow(client.EndpointSlices.GroupVersionResource, discoveryv1.LabelServiceName, "")
	}
	if n.namespace != "" {
		follow(client.Events.GroupVersionResource, "", events)
	}
}

// text returns a label selector in the form of list options; empty if it selects nothing or is invalid.
func text(s *metav1.LabelSelector) string {
	return strings.TrimPrefix(strings.TrimPrefix(metav1.FormatLabelSelector(s), "<none>"), "<error>")
}

// isServed reports whether n is a pod or a controller of pods, which Services may select.
func (n *node) isServed() bool {
	switch n.object.(type) {
	case *corev1.Pod, *corev1.ReplicationController, *appsv1.ReplicaSet, *appsv1.Deployment, *appsv1.StatefulSet, *appsv1.DaemonSet:
		return true
	}
	return false
}

// unselected returns a message if no Service selects pods with these labels, and "" if one does or if the Services are
// not known.
func (v *view) unselected(pod map[string]string) string {
	f := v.services
	if f == nil || !f.synced || f.failed || f.lost != nil {
		return ""
	}
	for _, n := range f.nodes {
		s, is := n.object.(*corev1.Service)
		// An ExternalName has no endpoints, whatever its selector.
		if is && s.Namespace == v.node.namespace && len(s.Spec.Selector) > 0 && s.Spec.Type != corev1.ServiceTypeExternalName &&
			labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod)) {
			return ""
		}
	}
	return "no Service selects pods with the labels " + labels.FormatLabels(pod)
}

// servicesChanged marks the members that wait for endpoints of Services to be judged again.
func (w *watcher) servicesChanged(namespace string) {
	for _, m := range w.members {
		if m.services != nil && m.namespace == namespace && m.state != isDone {
			w.touch(m)
		}
	}
}

// knows reports whether all parts of a member have been listed.
func (m *member) knows() bool {
	for _, f := range m.looks {
		if !f.synced {
			return false
		}
	}
	return m.looked
}

// spaceOf follows the namespace of a feed that has no objects: a missing or terminating namespace may be the reason.
func (w *watcher) spaceOf(f *feed) {
	if f.namespace == "" || w.req.For.has(Deleted) || !f.synced || w.spaces[f.namespace] != nil {
		return
	}
	if f.selecting() != nil && len(f.nodes) > 0 {
		return
	}
	if f.selecting() == nil && (!w.req.Missing && !w.req.For.has(Created) || !f.lacks()) {
		return
	}
	if f.selecting() != nil && !f.seen && !w.req.Missing && !w.req.For.has(Created) {
		return // the result is NothingMatched, whatever the namespace
	}
	w.spaces[f.namespace] = w.explain(source{GroupVersionResource: client.Namespaces.GroupVersionResource, fields: "metadata.name=" + f.namespace})
}

// lacks reports whether a named member does not exist.
func (f *feed) lacks() bool {
	for _, m := range f.members {
		if m.node == nil {
			return true
		}
	}
	return false
}

// spaceTrouble returns why a namespace cannot have objects, or "".
func (w *watcher) spaceTrouble(name string) string {
	f := w.spaces[name]
	if f == nil || !f.synced || f.failed {
		return ""
	}
	for _, n := range f.nodes {
		if n.name != name {
			continue
		}
		if ns, ok := n.object.(*corev1.Namespace); ok && (ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating) {
			return "the namespace " + name + " is being deleted"
		}
		return ""
	}
	return "the namespace " + name + " does not exist"
}

func (w *watcher) touchAbsent() {
	for _, m := range w.members {
		if m.node == nil {
			w.touch(m)
		}
	}
}
