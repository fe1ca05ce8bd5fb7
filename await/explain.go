package await

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
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

// An explainer follows the objects that can explain why a member is not done.
type explainer struct {
	*watcher
	member    *member
	namespace string // of the sources
	many      bool   // one source for the namespace costs less than one per member
	events    string // field selector of the events
}

// lookInto follows the objects that can explain why a member is not done: once per generation of the member, since its
// selector may have changed.
func (w *watcher) lookInto(m *member) {
	n := m.node
	if n == nil || w.req.For.has(Created) || m.looked && m.lookedAt == n.count {
		return
	}
	m.looked, m.lookedAt, m.looks = true, n.count, nil
	x := &explainer{watcher: w, member: m, namespace: n.namespace, many: len(w.members) > fewMembers, events: "type=" + corev1.EventTypeWarning}
	if m.target.Name == "" && m.feed.namespace == "" {
		x.namespace = ""
	}
	r := rulesOf(n.object)
	if w.req.For.needsSlices() && r.served {
		m.services = x.follow(client.Services.GroupVersionResource, "", "")
	}
	if r.explain != nil {
		r.explain(x, n.object)
	}
	if n.namespace == "" {
		return
	}
	if w.req.For.needsSlices() {
		x.follow(client.EndpointSlices.GroupVersionResource, discoveryv1.LabelServiceName, "")
	}
	x.follow(client.Events.GroupVersionResource, "", x.events)
}

// follow follows a resource in the namespace.
func (x *explainer) follow(r schema.GroupVersionResource, selector, fields string) *feed {
	return x.add(source{GroupVersionResource: r, namespace: x.namespace, labels: selector, fields: fields})
}

func (x *explainer) add(s source) *feed {
	f := x.explain(s)
	x.member.looks = append(x.member.looks, f)
	return f
}

// followParts follows a resource that a controller selects. It follows all objects of the namespace if there are many
// members, and to find old pods and their replica sets by owner references, because these may not have the labels of
// the current selector.
func (x *explainer) followParts(r schema.GroupVersionResource, selector string) {
	if x.many || x.req.For.has(OldGone) {
		selector = ""
	}
	x.follow(r, selector, "")
}

// text returns a label selector in the form of list options; empty if it selects nothing or is invalid.
func text(s *metav1.LabelSelector) string {
	return strings.TrimPrefix(strings.TrimPrefix(metav1.FormatLabelSelector(s), "<none>"), "<error>")
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
