package plugin

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/sorting"
)

// A Snapshot is the cluster as a decision sees it. Plug-ins read it (plugin-P1); a [Cluster] has one
// and changes it between decisions, one object at a time, so that a decision costs nothing for nodes
// that stay as they are.
//
// It is not safe for concurrent use, not even by readers: answers are worked out when
// they are asked for the first time.
type Snapshot struct {
	order      []*Node // nil: has to be worked out again
	byName     map[string]*Node
	existing   int
	slots      []*Node // by slot; nil: free
	free       []int32
	generation uint64

	placed     map[types.UID]placed
	nominated  map[types.UID]placed
	nominees   map[string][]*Pod // by node, most important first
	promised   [termKinds]int    // nominated pods that have such terms
	namespaces map[string]map[string]string
	images     map[string]int
	objects    map[schema.GroupVersionResource]*objects

	topologies map[string]*topology
	tallies    map[tallyKey]*tally
	uses       uint64
	questions  map[string]*question // by the key of the query
	filed      filing[*question]
	terms      [termKinds]map[string]*Carried
	termSet    uint64 // changes with the keys of terms
	filedTerms [termKinds]filing[*Carried]
}

// placed is a pod with the node that it has or is to have.
type placed struct {
	pod  *Pod
	node string
}

// A tally is a kept answer of Count.
type tally struct {
	*Counts
	of   *question
	used uint64
}

// tallyKey says what a tally counts. Its strings are short, however much a query says (see [fixedKey]), but for the key of
// the topology.
type tallyKey struct{ pods, topology, nodes string }

// A question is a query for pods with the tallies that count its pods. Whether it selects a pod is worked out once for all of
// them.
type question struct {
	*PodQuery
	tallies map[*tally]struct{} // not empty
}

// Carried is a term that placed pods have, with the number of them that have it in each domain of its
// topology key.
type Carried struct {
	Term
	*Counts
	pods int
}

// filing finds selectors of a pod by a label of the pod. Each thing is filed once at most.
type filing[T comparable] struct {
	byPair map[pair][]T
	loose  []T // without a label to find it by
	at     map[T]int
}

func (f *filing[T]) add(p pair, v T) {
	if f.at == nil {
		f.at, f.byPair = map[T]int{}, map[pair][]T{}
	}
	list := f.list(p)
	f.at[v] = len(list)
	f.store(p, append(list, v))
}

// remove takes the time of one step, however much is filed: all that one pod brought may go at once.
func (f *filing[T]) remove(p pair, v T) {
	list, at := f.list(p), f.at[v]
	delete(f.at, v)
	last := len(list) - 1
	if at != last {
		list[at] = list[last]
		f.at[list[at]] = at
	}
	var none T
	list[last] = none
	f.store(p, list[:last])
}

func (f *filing[T]) list(p pair) []T {
	if p == (pair{}) {
		return f.loose
	}
	return f.byPair[p]
}

func (f *filing[T]) store(p pair, list []T) {
	switch {
	case p == (pair{}):
		f.loose = list
	case len(list) == 0:
		delete(f.byPair, p)
	default:
		f.byPair[p] = list
	}
}

// each calls do with everything that may select the pod.
func (f *filing[T]) each(pod *Pod, do func(T)) {
	if len(f.byPair) > 0 {
		for k, v := range pod.Labels {
			for _, one := range f.byPair[pair{k, v}] {
				do(one)
			}
		}
	}
	for _, one := range f.loose {
		do(one)
	}
}

// Nodes returns the nodes in the order in which they are looked at: zone by zone in turn, so that any
// run of them is spread over the zones, and by name in each. The slice must not be changed.
func (s *Snapshot) Nodes() []*Node {
	if s.order == nil && s.existing > 0 {
		s.order = s.interleave()
	}
	return s.order
}

func (s *Snapshot) interleave() []*Node {
	byZone := map[string][]*Node{}
	for _, n := range s.byName {
		if n.Node != nil {
			zone := n.Labels[corev1.LabelTopologyRegion] + "\x00" + n.Labels[corev1.LabelTopologyZone]
			byZone[zone] = append(byZone[zone], n)
		}
	}
	zones := make([]string, 0, len(byZone))
	longest := 0
	for zone, nodes := range byZone {
		zones, longest = append(zones, zone), max(longest, len(nodes))
		slices.SortFunc(nodes, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	}
	slices.Sort(zones)
	order := make([]*Node, 0, s.existing)
	for i := range longest {
		for _, zone := range zones {
			if nodes := byZone[zone]; i < len(nodes) {
				order = append(order, nodes[i])
			}
		}
	}
	return order
}

// Node returns the node of that name, or nil.
func (s *Snapshot) Node(name string) *Node {
	if n := s.byName[name]; n != nil && n.Node != nil {
		return n
	}
	return nil
}

// Slots returns a number that is greater than every [Node.Slot].
func (s *Snapshot) Slots() int { return len(s.slots) }

// Generation changes whenever something in the Snapshot does.
func (s *Snapshot) Generation() uint64 { return s.generation }

// Placed returns the pod of that UID, if it counts on a node, and the name of the node, which need not exist.
func (s *Snapshot) Placed(uid types.UID) (pod *Pod, node string, ok bool) {
	p, ok := s.placed[uid]
	return p.pod, p.node, ok
}

// PlacedPods returns the number of pods that count on nodes.
func (s *Snapshot) PlacedPods() int { return len(s.placed) }

// Nominated returns the pods that are promised room on the node, most important first. They do
// not count on it yet. The slice must not be changed.
func (*Snapshot) Nominated(n *Node) []*Pod { return n.promised }

// Nomination returns the name of the node on which a pod is promised room, or "".
func (s *Snapshot) Nomination(uid types.UID) string { return s.nominated[uid].node }

// Promises reports whether pods that are promised room somewhere have terms of a kind: they are Carried while such a pod is
// tried where it is to run.
func (s *Snapshot) Promises(kind TermKind) bool { return s.promised[kind] > 0 }

// Namespace returns the labels of a namespace; nil if it is not known.
func (s *Snapshot) Namespace(name string) map[string]string { return s.namespaces[name] }

// NodesWithImage returns the number of nodes that have an image; see [ImageName].
func (s *Snapshot) NodesWithImage(name string) int { return s.images[name] }

// Count returns how many of the placed pods that pods selects there are in each domain of the topology key,
// on the nodes that nodes selects. The first time it looks at all pods; the answer is then kept
// current, so that the same question costs nothing for some thousand decisions to come.
func (s *Snapshot) Count(pods *PodQuery, key string, nodes NodeQuery) *Counts {
	id := tallyKey{pods.key, key, nodes.Key}
	s.uses++
	if t := s.tallies[id]; t != nil {
		t.used = s.uses
		return t.Counts
	}
	t := &tally{newCounts(s.topology(key), nodes), s.question(pods), s.uses}
	s.countPods(t)
	for slot, n := range s.slots {
		if n != nil {
			t.enter(int32(slot), n.Node)
		}
	}
	if s.tallies == nil {
		s.tallies = map[tallyKey]*tally{}
	}
	s.tallies[id] = t
	t.of.tallies[t] = struct{}{}
	return t.Counts
}

// question returns the question about the pods of a query.
func (s *Snapshot) question(pods *PodQuery) *question {
	q := s.questions[pods.key]
	if q == nil {
		q = &question{pods, map[*tally]struct{}{}}
		if s.questions == nil {
			s.questions = map[string]*question{}
		}
		s.questions[pods.key] = q
		s.filed.add(pods.pair, q)
	}
	return q
}

// countPods fills in how many pods a new tally counts on each node. Another one of the same question has counted them.
func (s *Snapshot) countPods(t *tally) {
	for other := range t.of.tallies {
		t.perNode = maps.Clone(other.perNode)
		return
	}
	for slot, n := range s.slots {
		if n == nil {
			continue
		}
		for _, p := range n.Pods {
			if s.Selects(t.of.PodQuery, p) {
				t.perNode[int32(slot)]++
			}
		}
	}
}

// forget ends a tally.
func (s *Snapshot) forget(id tallyKey, t *tally) {
	delete(s.tallies, id)
	delete(t.of.tallies, t)
	if len(t.of.tallies) == 0 {
		delete(s.questions, t.of.key)
		s.filed.remove(t.of.pair, t.of)
	}
}

// Carried returns the terms of a kind that placed pods have and that select the given pod, in a fixed
// order. Their Counts stay current; whether there are other terms [Snapshot.CarriedGeneration] says.
func (s *Snapshot) Carried(kind TermKind, pod *Pod) []*Carried {
	var found []*Carried
	s.filedTerms[kind].each(pod, func(c *Carried) {
		if s.Selects(c.Pods, pod) {
			found = append(found, c)
		}
	})
	if len(found) > 1 {
		slices.SortFunc(found, func(a, b *Carried) int { return strings.Compare(a.id, b.id) })
	}
	return found
}

// CarriedGeneration changes whenever [Snapshot.Carried] can answer with other terms than before.
func (s *Snapshot) CarriedGeneration() uint64 { return s.termSet }

func (s *Snapshot) topology(key string) *topology {
	t := s.topologies[key]
	if t == nil {
		t = newTopology(key)
		for slot, n := range s.slots {
			if n != nil {
				t.set(int32(slot), n.Node)
			}
		}
		if s.topologies == nil {
			s.topologies = map[string]*topology{}
		}
		s.topologies[key] = t
	}
	return t
}

// objects are those of another resource.
type objects struct {
	byName map[types.NamespacedName]client.Object
	sorted map[string][]client.Object // by namespace, "" being all; the lists since the last change
}

// Find returns an object of a resource that the plug-in needs; see [Needer].
func Find[T client.Object](s *Snapshot, r client.Resource[T], namespace, name string) (T, bool) {
	var none T
	o := s.objects[r.GroupVersionResource]
	if o == nil {
		return none, false
	}
	t, ok := o.byName[types.NamespacedName{Namespace: namespace, Name: name}].(T)
	return t, ok
}

// Each calls f with all objects of a resource that the plug-in needs, in no particular order. They must not be changed. It
// is cheaper than [All], which sorts.
func Each[T client.Object](s *Snapshot, r client.Resource[T], f func(T)) {
	o := s.objects[r.GroupVersionResource]
	if o == nil {
		return
	}
	for _, obj := range o.byName {
		if t, ok := obj.(T); ok {
			f(t)
		}
	}
}

// All returns the objects of a resource that the plug-in needs, in a namespace or, if that is empty, all,
// ordered by namespace and name. They must not be changed, the slice is the caller's.
func All[T client.Object](s *Snapshot, r client.Resource[T], namespace string) []T {
	o := s.objects[r.GroupVersionResource]
	if o == nil || len(o.byName) == 0 {
		return nil
	}
	list, ok := o.sorted[namespace]
	if !ok {
		for key, obj := range o.byName {
			if namespace == "" || key.Namespace == namespace {
				list = append(list, obj)
			}
		}
		sorting.Slice(list, func(a, b client.Object) int {
			if c := strings.Compare(a.GetNamespace(), b.GetNamespace()); c != 0 {
				return c
			}
			return strings.Compare(a.GetName(), b.GetName())
		})
		if o.sorted == nil {
			o.sorted = map[string][]client.Object{}
		}
		o.sorted[namespace] = list
	}
	out := make([]T, 0, len(list))
	for _, obj := range list {
		if t, ok := obj.(T); ok {
			out = append(out, t)
		}
	}
	return out
}
