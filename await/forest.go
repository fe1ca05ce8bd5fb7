package await

import (
	"cmp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/client"
)

// A forest holds objects and their owner relations. Each object is a node under its owners. An owner keeps sums over the
// nodes below it, and a sorted list of the nodes that hold it up. So the cost of a change depends on how many owners the
// object has, not on how many siblings. Owners are judged again once for all pending changes (flush).
//
// In a compact forest a pod is judged when it arrives, and only the verdict is kept, which takes about a hundredth of
// the memory of the pod.
type forest struct {
	degree  Degree      // by which members are judged
	parts   Degree      // by which their parts are judged
	compact bool        // keep the verdicts on pods, not the pods
	touched func(*node) // called for each node that has to be judged again as a member; may be nil

	nodes  map[types.UID]*node
	kinds  map[schema.GroupVersionResource]*kind
	notes  map[types.UID][]events.Note
	ends   map[types.NamespacedName]*ends // by Service
	serves map[types.UID]*serving         // by pod
	dirty  []*node
	texts  map[string]string // strings that many nodes share

	deployments map[types.NamespacedName]*node
	named       map[name]*namedObject // objects that pods name
	about       map[types.UID]name    // their names
}

// A kind is the resource and kind that all nodes of a resource share.
type kind struct {
	resource schema.GroupVersionResource
	name     string
}

// A node is one object, or an object that others refer to and that has not been seen.
type node struct {
	*kind
	uid             types.UID
	namespace, name string

	object   client.Object  // nil if the object does not exist, and for pods in a compact forest
	fields   map[string]any // the object as the server sent it, if an expression needs it and the client has it
	there    bool           // the object exists
	version  string         // its resource version
	revision string         // the revision of its owner that it belongs to
	count    int64          // its generation
	restarts int32          // of its containers

	part    judged  // the verdict on it as a part, without warnings
	verdict Verdict // the same with warnings
	own     judged  // the verdict on it as a member; only in a compact forest
	names   []name  // the objects that keep a pod from starting, if it is not starting yet
	tally   tally   // of this object
	given   tally   // its share in the sums of its owners

	owners       []*node
	kids         int               // how many nodes have it as an owner
	sums         map[string]*tally // over the nodes below it, by revision
	troubled     []*node           // the nodes that hold it up, worst first
	observations []observation
	before       *node   // the controller whose pods it replaces
	after        []*node // the controllers that replace its pods
	members      []*member
	restarted    bool // a container below it has restarted since a member was judged
	dirty        bool
}

// An observation records in which list of a feed an object was last seen.
type observation struct {
	by    *feed
	epoch uint32
}

// A tally counts pods.
type tally struct {
	live, ending, ended       int32 // neither ended nor being deleted; being deleted; ended
	scheduled, running, ready int32 // live pods
	serving                   int32 // ready, and serving in every EndpointSlice that has them
	troubled                  int32 // pods that hold up their owner
}

func (t *tally) add(o tally, sign int32) {
	t.live += sign * o.live
	t.ending += sign * o.ending
	t.ended += sign * o.ended
	t.scheduled += sign * o.scheduled
	t.running += sign * o.running
	t.ready += sign * o.ready
	t.serving += sign * o.serving
	t.troubled += sign * o.troubled
}

// ends are the endpoints of a Service.
type ends struct {
	slices       map[types.UID]endpoints
	all, serving int
	portless     int   // endpoints that have none of the Service's named ports, and do not count
	service      *node // nil if it has not been seen
}

// byController is the managed-by label of the slices that the cluster makes for Services with selectors.
const byController = "endpointslice-controller.k8s.io"

// endpoints are the endpoints of one EndpointSlice.
type endpoints struct {
	all, serving int
	portless     int
	pods         []endpoint
}

type endpoint struct {
	pod    types.UID
	serves bool
}

// serving counts the slices in which a pod does and does not serve.
type serving struct{ yes, no int }

func newForest(d Degree) *forest {
	return &forest{
		degree: d, parts: d.ofParts(), compact: d.compact(),
		nodes: map[types.UID]*node{}, kinds: map[schema.GroupVersionResource]*kind{},
		notes: map[types.UID][]events.Note{}, ends: map[types.NamespacedName]*ends{}, serves: map[types.UID]*serving{},
		texts: map[string]string{}, deployments: map[types.NamespacedName]*node{},
		named: map[name]*namedObject{}, about: map[types.UID]name{},
	}
}

// kindOf returns the kind that the nodes of a resource share.
func (f *forest) kindOf(r schema.GroupVersionResource, name string) *kind {
	k := f.kinds[r]
	if k == nil {
		k = &kind{r, name}
		f.kinds[r] = k
	}
	if k.name == "" {
		k.name = name
	}
	return k
}

func (f *forest) guess(o client.Object) *kind {
	gvk := client.KindOf(o)
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return f.kindOf(plural, gvk.Kind)
}

// maxTexts limits the number of shared strings. It may be small, because many pods wait for few reasons.
const maxTexts = 1000

// once returns a copy of a string that is shared by all callers with the same string.
func (f *forest) once(text string) string {
	if s, ok := f.texts[text]; ok {
		return s
	}
	if len(f.texts) >= maxTexts {
		clear(f.texts)
	}
	f.texts[text] = text
	return text
}

// idOf returns an object's UID, or kind, namespace and name for an object without one.
func idOf(o client.Object) types.UID {
	if id := o.GetUID(); id != "" {
		return id
	}
	return types.UID(client.KindOf(o).Kind + " " + o.GetNamespace() + "/" + o.GetName())
}

// node returns the node of an object. It makes one if there is none.
func (f *forest) node(k *kind, o client.Object) *node {
	id := idOf(o)
	n := f.nodes[id]
	if n == nil {
		n = &node{uid: id}
		f.nodes[id] = n
	}
	if n.kind == nil {
		n.kind, n.namespace, n.name = k, f.once(o.GetNamespace()), o.GetName()
	}
	return n
}

// place adds or updates an object. under are the UIDs of its owners beside its controller.
func (f *forest) place(k *kind, o client.Object, under ...types.UID) *node {
	n := f.node(k, o)
	ref := metav1.GetControllerOfNoCopy(o)
	n.there, n.version, n.count, n.object = true, o.GetResourceVersion(), o.GetGeneration(), o
	var owners []*node
	if ref != nil {
		owners = f.own(owners, n, ref.UID)
	}
	for _, id := range under {
		owners = f.own(owners, n, id)
	}
	if r := rulesOf(o); r.place != nil {
		r.place(f, n, o)
	}
	f.link(n, owners, revisionOf(o, ref))
	f.touch(n)
	return n
}

// own adds the node with this UID to the owners of n.
func (f *forest) own(owners []*node, n *node, id types.UID) []*node {
	if id == "" || id == n.uid {
		return owners
	}
	owner := f.nodes[id]
	if owner == nil { // it may come later
		owner = &node{uid: id}
		f.nodes[id] = owner
	}
	if slices.Contains(owners, owner) {
		return owners
	}
	return append(owners, owner)
}

// adopt puts a pod whose replica set was deleted under its Deployment. A replica set is deleted as soon as it has no live
// pods, when some of its pods may still be terminating. Its name is that of the Deployment with the pod template hash.
func (f *forest) adopt(p *corev1.Pod, owner *metav1.OwnerReference) {
	if owner == nil || owner.Kind != "ReplicaSet" || !f.degree.has(OldGone) {
		return
	}
	name, is := strings.CutSuffix(owner.Name, "-"+p.Labels[appsv1.DefaultDeploymentUniqueLabelKey])
	d := f.deployments[types.NamespacedName{Namespace: p.Namespace, Name: name}]
	rs := f.nodes[owner.UID]
	if !is || d == nil || rs == nil || rs.there || len(rs.owners) > 0 {
		return
	}
	rs.kind, rs.namespace, rs.name = f.kindOf(replicaSets, "ReplicaSet"), f.once(p.Namespace), owner.Name
	f.link(rs, []*node{d}, replicaSetGone)
}

// replicaSetGone is the revision of a replica set that was never seen. No Deployment has this revision.
const replicaSetGone = "gone"

// follows records that a controller replaces the pods of the one with this UID, which may be empty.
func (f *forest) follows(n *node, before types.UID) {
	if n.before != nil && n.before.uid != before {
		old := n.before
		n.before = nil
		old.after = slices.DeleteFunc(old.after, func(o *node) bool { return o == n })
		f.forget(old)
	}
	if n.before != nil || before == "" || before == n.uid {
		return
	}
	if n.before = f.nodes[before]; n.before == nil {
		n.before = &node{uid: before}
		f.nodes[before] = n.before
	}
	n.before.after = append(n.before.after, n)
}

// remove marks an object as deleted.
func (f *forest) remove(n *node) {
	var (
		owners   []*node
		revision string
	)
	if n.isBetween() && n.kids > 0 && f.degree.has(OldGone) {
		owners, revision = n.owners, n.revision // keep it until its pods are deleted
	}
	n.object, n.fields, n.there, n.tally, n.part, n.own = nil, nil, false, tally{}, judged{}, judged{}
	f.setNames(n, nil)
	f.link(n, owners, revision)
	f.follows(n, "")
	f.touch(n)
	f.forget(n)
}

// forget drops a node of a deleted object when no other node or member refers to it.
func (f *forest) forget(n *node) {
	if n.there || len(n.members) > 0 || n.kids > 0 || len(n.after) > 0 || f.nodes[n.uid] != n {
		return
	}
	delete(f.nodes, n.uid)
	f.link(n, nil, "")
	if d := (types.NamespacedName{Namespace: n.namespace, Name: n.name}); f.deployments[d] == n {
		delete(f.deployments, d)
	}
	if n.kind != nil && n.resource == client.Services.GroupVersionResource {
		if e := f.ends[types.NamespacedName{Namespace: n.namespace, Name: n.name}]; e != nil && e.service == n {
			e.service = nil
		}
	}
}

// link puts a node under its owners and adds its counts to their sums. The owners are judged again only if something has
// changed for them.
func (f *forest) link(n *node, owners []*node, revision string) {
	verdict := Verdict{State: Done}
	if n.part.known {
		verdict = f.final(n, n.part)
	} else if !n.there && len(n.troubled) > 0 {
		verdict = n.troubled[0].verdict
	}
	given := n.tally
	if s := f.serves[n.uid]; given.ready > 0 && s != nil && s.yes > 0 && s.no == 0 {
		given.serving = 1
	}
	for _, t := range n.sums {
		given.add(*t, 1)
	}
	if verdict.severity() > 0 && given.troubled == 0 && !(n.isBetween() && verdict.State == Waiting) {
		given.troubled = 1
	}
	if verdict == n.verdict && given == n.given && revision == n.revision && slices.Equal(owners, n.owners) {
		return
	}
	before := n.owners
	for _, o := range before {
		sum := o.sums[n.revision]
		sum.add(n.given, -1)
		if *sum == (tally{}) {
			delete(o.sums, n.revision)
		}
		if i, found := slices.BinarySearchFunc(o.troubled, n, moreTrouble); found {
			o.troubled = slices.Delete(o.troubled, i, i+1)
		}
		o.kids--
		f.touch(o)
	}
	n.owners, n.revision, n.verdict, n.given = owners, revision, verdict, given
	for _, o := range owners {
		if o.sums == nil {
			o.sums = map[string]*tally{}
		}
		if o.sums[revision] == nil {
			o.sums[revision] = &tally{}
		}
		o.sums[revision].add(given, 1)
		if verdict.severity() > 0 {
			i, _ := slices.BinarySearchFunc(o.troubled, n, moreTrouble)
			o.troubled = slices.Insert(o.troubled, i, n)
		}
		o.kids++
		f.touch(o)
	}
	for _, o := range before {
		f.forget(o)
	}
}

// relink updates a node's share in its owners' sums.
func (f *forest) relink(n *node) { f.link(n, n.owners, n.revision) }

func moreTrouble(a, b *node) int {
	return cmp.Or(b.verdict.severity()-a.verdict.severity(), strings.Compare(a.name, b.name), strings.Compare(string(a.uid), string(b.uid)))
}

func (f *forest) touch(n *node) {
	if !n.dirty {
		n.dirty = true
		f.dirty = append(f.dirty, n)
	}
}

// flush judges the changed nodes again, parts before their owners, and calls touched for the nodes to be judged as
// members.
func (f *forest) flush() {
	for len(f.dirty) > 0 {
		dirty := f.dirty
		f.dirty = nil
		for _, n := range dirty {
			n.dirty = false
			switch {
			case len(n.owners) == 0 || n.isPod():
			case n.there:
				f.again(n)
			default:
				f.relink(n)
			}
			for _, o := range n.after {
				if len(o.members) > 0 && f.touched != nil {
					f.touched(o)
				}
			}
			if len(n.members) > 0 && f.touched != nil {
				f.touched(n)
			}
		}
	}
}

// again judges an object that has parts as a part of another.
func (f *forest) again(n *node) {
	verdict, err := judge(f.parts, f.view(n))
	if err != nil {
		verdict = done() // the kind does not support this degree
	}
	n.part = judged{Verdict: verdict, known: true}
	f.relink(n)
}

func (n *node) isPod() bool { return n.kind != nil && n.resource == client.Pods.GroupVersionResource }

// isBetween reports whether n is between a controller and its pods, so that its waiting is not a problem of its own.
func (n *node) isBetween() bool { return n.kind != nil && n.resource == replicaSets }

// restarted marks a node and its owners, because a container of it has restarted.
func (f *forest) restarted(n *node) {
	n.restarted = true
	f.touch(n)
	for _, o := range n.owners {
		f.restarted(o)
	}
}

// ref returns the reference to the object for messages.
func (n *node) ref() Ref {
	return Ref{n.resource, n.kind.name, n.namespace, n.name, n.uid}
}

// note adds an event. Its object need not be known yet.
func (f *forest) note(e *corev1.Event, fresh bool, epoch uint32) {
	n := events.NoteOf(e, fresh)
	n.Epoch, n.Namespace = epoch, f.once(n.Namespace)
	n.Kind, n.Reason, n.Message, n.From = f.once(n.Kind), f.once(n.Reason), f.once(n.Message), f.once(n.From)
	about := e.InvolvedObject.UID
	f.notes[about] = events.Add(f.notes[about], n)
	f.renoted(about)
}

// unnote removes an event.
func (f *forest) unnote(e *corev1.Event) {
	about := e.InvolvedObject.UID
	f.dropNotes(about, func(n events.Note) bool { return n.UID == e.UID && n.Name == e.Name })
}

func (f *forest) dropNotes(about types.UID, which func(events.Note) bool) {
	before := len(f.notes[about])
	f.notes[about] = slices.DeleteFunc(f.notes[about], which)
	if len(f.notes[about]) == before {
		return
	}
	if len(f.notes[about]) == 0 {
		delete(f.notes, about)
	}
	f.renoted(about)
}

func (f *forest) renoted(about types.UID) {
	if n := f.nodes[about]; n != nil {
		f.relink(n)
		f.touch(n)
	}
	if n, is := f.about[about]; is {
		f.renamed(n)
	}
}

func (f *forest) endsOf(service types.NamespacedName) *ends {
	e := f.ends[service]
	if e == nil {
		e = &ends{slices: map[types.UID]endpoints{}}
		f.ends[service] = e
	}
	return e
}

// slice adds or updates an EndpointSlice.
func (f *forest) slice(s *discoveryv1.EndpointSlice) {
	var now endpoints
	if _, headless := s.Labels[corev1.IsHeadlessService]; len(s.Ports) == 0 && !headless && s.Labels[discoveryv1.LabelManagedBy] == byController {
		now.portless = len(s.Endpoints)
		f.reslice(s, now)
		return
	}
	for _, e := range s.Endpoints {
		p := endpoint{serves: serves(e)}
		if e.TargetRef != nil && e.TargetRef.Kind == client.Pods.Kind {
			p.pod = e.TargetRef.UID
		}
		now.all++
		if p.serves {
			now.serving++
		}
		if p.pod != "" {
			now.pods = append(now.pods, p)
		}
	}
	f.reslice(s, now)
}

// unslice removes an EndpointSlice.
func (f *forest) unslice(s *discoveryv1.EndpointSlice) { f.reslice(s, endpoints{}) }

func (f *forest) reslice(s *discoveryv1.EndpointSlice, now endpoints) {
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
	e := f.endsOf(key)
	old := e.slices[s.UID]
	e.all += now.all - old.all
	e.serving += now.serving - old.serving
	e.portless += now.portless - old.portless
	if now.all+now.portless == 0 {
		delete(e.slices, s.UID)
	} else {
		e.slices[s.UID] = now
	}
	for _, p := range old.pods {
		f.serve(p, -1)
	}
	for _, p := range now.pods {
		f.serve(p, 1)
	}
	for _, pods := range [][]endpoint{old.pods, now.pods} {
		for _, p := range pods {
			if n := f.nodes[p.pod]; n != nil {
				f.relink(n)
				f.touch(n)
			}
		}
	}
	if e.service != nil {
		f.touch(e.service)
	}
}

func (f *forest) serve(p endpoint, sign int) {
	s := f.serves[p.pod]
	if s == nil {
		s = &serving{}
		f.serves[p.pod] = s
	}
	if p.serves {
		s.yes += sign
	} else {
		s.no += sign
	}
	if *s == (serving{}) {
		delete(f.serves, p.pod)
	}
}

// serves reports whether an endpoint is serving, with the defaults of discovery.k8s.io/v1 for unset conditions.
func serves(e discoveryv1.Endpoint) bool {
	switch {
	case e.Conditions.Serving != nil:
		return *e.Conditions.Serving
	case e.Conditions.Ready != nil:
		return *e.Conditions.Ready
	}
	return true
}

// revisionOf returns the revision of its controller that an object belongs to; empty if the controller has no revisions.
func revisionOf(o client.Object, owner *metav1.OwnerReference) string {
	for i := range kinds {
		if k := &kinds[i]; owner != nil && k.revision != nil && k.Kind == owner.Kind {
			return k.revision(o)
		}
	}
	return ""
}

// keep stores the unstructured object for expressions, which may read fields that the Go type does not have.
func (f *forest) keep(n *node, o client.Object) {
	if u, ok := o.(*unstructured.Unstructured); ok && f.degree.asks() {
		n.fields = u.Object
	}
}

// slim returns a copy of an object without the fields that no verdict needs. It does not change o, which is shared.
func (f *forest) slim(o client.Object) client.Object {
	if f.degree.asks() {
		return o // an expression may read any field
	}
	if r := rulesOf(o); r.slim != nil {
		return r.slim(o)
	}
	return o
}

// labelsOf returns a pod template with nothing but its labels.
func labelsOf(t corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: t.Labels}}
}
