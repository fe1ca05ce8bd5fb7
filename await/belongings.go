package await

import (
	"maps"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
)

// fewMembers is up to how many members what belongs to each is watched by a
// selector of its own; beyond, one watch of everything in the namespace is less.
const fewMembers = 8

// belongings are what the members' verdicts are made from beside themselves.
// They are followed only once a member turns out not to be done.
type belongings struct {
	followed map[source]map[types.UID]client.Object
	unheard  map[source]bool // those that have not been listed yet

	pods     map[types.UID]map[types.UID]*corev1.Pod // by controller
	owner    map[types.UID]types.UID                 // of pods
	slices   map[types.NamespacedName]map[types.UID]*discoveryv1.EndpointSlice
	warnings map[types.UID]map[types.UID]*corev1.Event // by the object that they are about
}

func newBelongings() belongings {
	return belongings{
		followed: map[source]map[types.UID]client.Object{},
		unheard:  map[source]bool{},
		pods:     map[types.UID]map[types.UID]*corev1.Pod{},
		owner:    map[types.UID]types.UID{},
		slices:   map[types.NamespacedName]map[types.UID]*discoveryv1.EndpointSlice{},
		warnings: map[types.UID]map[types.UID]*corev1.Event{},
	}
}

// view returns what a member's verdict is made from.
func (w *watcher) view(m *member) View {
	v := View{Object: m.object}
	if m.object == nil {
		return v
	}
	uid := m.object.GetUID()
	about := []types.UID{uid}
	for _, p := range w.pods[uid] {
		v.Pods = append(v.Pods, p)
		about = append(about, p.UID)
	}
	for _, s := range w.slices[keyOf(m.object)] {
		v.Slices = append(v.Slices, s)
	}
	for _, id := range about {
		for _, e := range w.warnings[id] {
			v.Warnings = append(v.Warnings, e)
		}
	}
	return v
}

// lookInto follows what can explain why a member is not done.
func (w *watcher) lookInto(m *member) error {
	if w.req.For.needsNoMembers() {
		return nil
	}
	obj, err := typed(m.object)
	if err != nil {
		return err
	}
	many := len(w.members) > fewMembers
	namespace := m.object.GetNamespace()
	if m.target.Name == "" {
		namespace = m.target.Namespace
	}
	selected := func(selector string) source {
		if many {
			selector = ""
		}
		return source{namespace: namespace, labels: selector}
	}
	follow := func(s source) {
		s.belongs = true
		broad := s
		broad.labels = ""
		if w.followed[s] == nil && w.followed[broad] == nil {
			w.followed[s] = map[types.UID]client.Object{}
			w.unheard[s] = true
			w.start(s)
		}
	}
	switch o := obj.(type) {
	case *corev1.ReplicationController:
		s := selected(labels.SelectorFromSet(o.Spec.Selector).String())
		s.GroupVersionResource = client.Pods.GroupVersionResource
		follow(s)
	case *batchv1.Job:
		s := selected(strings.TrimPrefix(metav1.FormatLabelSelector(o.Spec.Selector), "<none>"))
		s.GroupVersionResource = client.Pods.GroupVersionResource
		follow(s)
	case *corev1.Service:
		s := selected(discoveryv1.LabelServiceName + "=" + o.Name)
		if many {
			s.labels = discoveryv1.LabelServiceName
		}
		s.GroupVersionResource = client.EndpointSlices.GroupVersionResource
		follow(s)
		return nil
	case *corev1.Pod:
	default:
		return nil
	}
	follow(source{
		GroupVersionResource: client.Events.GroupVersionResource, namespace: namespace,
		fields: "type=" + corev1.EventTypeWarning,
	})
	return nil
}

// heard notes that a source has been listed, or never will be.
func (w *watcher) heard(s source) {
	if !w.unheard[s] {
		return
	}
	delete(w.unheard, s)
	for _, m := range w.members {
		if !m.said {
			w.dirty[m] = true
		}
	}
}

// belong takes in a report about belongings.
func (w *watcher) belong(r report) error {
	known := w.followed[r.from]
	switch {
	case r.listed:
		gone := make(map[types.UID]client.Object, len(known))
		maps.Copy(gone, known)
		for _, o := range r.list {
			delete(gone, o.GetUID())
			if err := w.place(r.from, o); err != nil {
				return err
			}
		}
		for _, o := range gone {
			w.displace(r.from, o)
		}
	case r.deleted:
		if o := known[r.object.GetUID()]; o != nil {
			w.displace(r.from, o)
		}
	default:
		return w.place(r.from, r.object)
	}
	return nil
}

// place puts an object where the members that it belongs to find it.
func (w *watcher) place(s source, o client.Object) error {
	o, err := typed(o)
	if err != nil {
		return err
	}
	id := o.GetUID()
	if old := w.followed[s][id]; old != nil {
		w.displace(s, old) // it may have changed hands
	}
	w.followed[s][id] = o
	switch o := o.(type) {
	case *corev1.Pod:
		if ref := metav1.GetControllerOf(o); ref != nil {
			add(w.pods, ref.UID, id, o)
			w.owner[id] = ref.UID
			w.touch(ref.UID)
		}
	case *discoveryv1.EndpointSlice:
		key := serviceOf(o)
		add(w.slices, key, id, o)
		w.touchService(key)
	case *corev1.Event:
		add(w.warnings, o.InvolvedObject.UID, id, o)
		w.touch(o.InvolvedObject.UID)
		w.touch(w.owner[o.InvolvedObject.UID])
	}
	return nil
}

// displace undoes place.
func (w *watcher) displace(s source, o client.Object) {
	id := o.GetUID()
	delete(w.followed[s], id)
	switch o := o.(type) {
	case *corev1.Pod:
		owner := w.owner[id]
		drop(w.pods, owner, id)
		delete(w.owner, id)
		w.touch(owner)
	case *discoveryv1.EndpointSlice:
		key := serviceOf(o)
		drop(w.slices, key, id)
		w.touchService(key)
	case *corev1.Event:
		drop(w.warnings, o.InvolvedObject.UID, id)
	}
}

func add[K comparable, V any](m map[K]map[types.UID]V, key K, id types.UID, v V) {
	if m[key] == nil {
		m[key] = map[types.UID]V{}
	}
	m[key][id] = v
}

func drop[K comparable, V any](m map[K]map[types.UID]V, key K, id types.UID) {
	delete(m[key], id)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

func serviceOf(s *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
}

// touch has the member with this UID judged again.
func (w *watcher) touch(id types.UID) {
	if m := w.byUID[id]; m != nil {
		w.dirty[m] = true
	}
}

func (w *watcher) touchService(key types.NamespacedName) {
	for _, m := range w.members {
		if m.object != nil && m.ref.Resource == client.Services.GroupVersionResource && keyOf(m.object) == key {
			w.dirty[m] = true
		}
	}
}
