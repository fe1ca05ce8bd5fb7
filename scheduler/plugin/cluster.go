package plugin

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
)

// A Cluster keeps a [Snapshot] current: it belongs to the scheduler, to tools that decide without a
// server, and to tests. Objects that it is given must not change afterwards. The zero
// Cluster is empty. It is not safe for concurrent use.
type Cluster struct {
	Snapshot Snapshot

	// KeepReleased has the Cluster remember for [Cluster.Released] whose promised room became free.
	KeepReleased bool
	released     []*Pod
}

// Released returns the pods that are promised no room any more where they were, since it was called last, and did
// not get it: others may fit now.
func (c *Cluster) Released() []*Pod {
	out := c.released
	c.released = nil
	return out
}

// node returns the node of that name; one that does not exist (yet, or any more) can have
// pods all the same.
func (s *Snapshot) node(name string) *Node {
	if n := s.byName[name]; n != nil {
		return n
	}
	n := &Node{promised: s.nominees[name]}
	if last := len(s.free) - 1; last >= 0 {
		n.slot = s.free[last]
		s.free = s.free[:last]
		s.slots[n.slot] = n
	} else {
		n.slot = int32(len(s.slots))
		s.slots = append(s.slots, n)
	}
	if s.byName == nil {
		s.byName = map[string]*Node{}
	}
	s.byName[name] = n
	return n
}

func (s *Snapshot) touch(n *Node) {
	s.generation++
	n.generation = s.generation
}

// SetNode adds a node or notes its new state.
func (c *Cluster) SetNode(obj *corev1.Node) {
	s := &c.Snapshot
	n := s.node(obj.Name)
	old := n.Node
	s.countImages(n, -1)
	n.set(obj)
	s.countImages(n, 1)
	s.touch(n)
	if old == nil {
		s.existing++
	}
	if old != nil && equality.Semantic.DeepEqual(old.Labels, obj.Labels) {
		if !equality.Semantic.DeepEqual(old.Spec, obj.Spec) {
			s.regroup(n, false)
		}
		return
	}
	s.order = nil
	s.regroup(n, true)
}

// DropNode removes a node. Pods that count on it stay.
func (c *Cluster) DropNode(name string) {
	s := &c.Snapshot
	n := s.byName[name]
	if n == nil || n.Node == nil {
		return
	}
	s.countImages(n, -1)
	n.Node, n.Allocatable, n.Images = nil, Resources{}, nil
	s.touch(n)
	s.existing--
	s.order = nil
	s.regroup(n, true)
	s.release(name, n)
}

// release forgets a node that neither exists nor has pods.
func (s *Snapshot) release(name string, n *Node) {
	if n.Node == nil && len(n.Pods) == 0 {
		delete(s.byName, name)
		s.slots[n.slot] = nil
		s.free = append(s.free, n.slot)
	}
}

func (s *Snapshot) countImages(n *Node, by int) {
	for name := range n.Images {
		if s.images == nil {
			s.images = map[string]int{}
		}
		if s.images[name] += by; s.images[name] == 0 {
			delete(s.images, name)
		}
	}
}

// regroup notes that a node may be in other domains than before, or count elsewhere.
func (s *Snapshot) regroup(n *Node, relabelled bool) {
	each := func(do func(*Counts)) {
		for _, t := range s.tallies {
			if relabelled || t.domains != nil {
				do(t.Counts)
			}
		}
		if relabelled {
			for _, terms := range s.terms {
				for _, t := range terms {
					do(t.Counts)
				}
			}
		}
	}
	each(func(c *Counts) { c.leave(n.slot) })
	if relabelled {
		for _, t := range s.topologies {
			t.set(n.slot, n.Node)
		}
	}
	each(func(c *Counts) { c.enter(n.slot, n.Node) })
}

// Place counts a pod on a node, and no longer where or how it counted before. A nomination of
// the pod ends.
func (c *Cluster) Place(pod *Pod, node string) {
	s := &c.Snapshot
	c.Unplace(pod.UID)
	c.nominate(pod, "", node)
	if s.placed == nil {
		s.placed = map[types.UID]placed{}
	}
	s.placed[pod.UID] = placed{pod, node}
	s.put(pod, node)
}

// Unplace counts a pod out and reports whether it counted.
func (c *Cluster) Unplace(uid types.UID) bool {
	s := &c.Snapshot
	p, ok := s.placed[uid]
	if ok {
		delete(s.placed, uid)
		s.take(p.pod, p.node)
	}
	return ok
}

func (s *Snapshot) put(pod *Pod, node string) {
	n := s.node(node)
	n.add(pod)
	s.touch(n)
	s.count(pod, n, 1)
}

func (s *Snapshot) take(pod *Pod, node string) {
	n := s.byName[node]
	if n == nil || !n.remove(pod) {
		return
	}
	s.touch(n)
	s.count(pod, n, -1)
	s.release(node, n)
}

// count adds a pod of a node to all counts: once, or by is -1 and the pod is subtracted.
func (s *Snapshot) count(pod *Pod, n *Node, by int32) {
	s.filed.each(pod, func(q *question) {
		if s.Selects(q.PodQuery, pod) {
			for t := range q.tallies {
				t.add(n.slot, by)
			}
		}
	})
	if pod.Affinity == nil {
		return
	}
	for kind := range pod.Affinity {
		for _, t := range pod.Affinity[kind] {
			s.carry(TermKind(kind), t, n, by)
		}
	}
}

func (s *Snapshot) carry(kind TermKind, t Term, n *Node, by int32) {
	c := s.terms[kind][t.id]
	if c == nil {
		c = &Carried{Term: t, Counts: newCounts(s.topology(t.Key), NodeQuery{})}
		if s.terms[kind] == nil {
			s.terms[kind] = map[string]*Carried{}
		}
		s.terms[kind][t.id] = c
		s.termSet++
		s.filedTerms[kind].add(t.Pods.pair, c)
	}
	c.add(n.slot, by)
	if c.pods += int(by); c.pods == 0 {
		delete(s.terms[kind], t.id)
		s.termSet++
		s.filedTerms[kind].remove(t.Pods.pair, c)
	}
}

// Nominate promises a pod room on a node; an empty node ends the promise.
func (c *Cluster) Nominate(pod *Pod, node string) { c.nominate(pod, node, node) }

// nominate is Nominate for a pod that takes something on a node now.
func (c *Cluster) nominate(pod *Pod, node, takes string) {
	s := &c.Snapshot
	old, was := s.nominated[pod.UID]
	if was && old.node == node && old.pod == pod || !was && node == "" {
		return
	}
	if was {
		left := slices.DeleteFunc(slices.Clone(s.nominees[old.node]), func(p *Pod) bool { return p.UID == pod.UID })
		if s.nominees[old.node] = left; len(left) == 0 {
			left = nil
			delete(s.nominees, old.node)
		}
		if n := s.byName[old.node]; n != nil {
			n.promised = left
		}
		delete(s.nominated, pod.UID)
		s.promise(old.pod, -1)
		if c.KeepReleased && old.node != takes {
			c.released = append(c.released, old.pod)
		}
		s.touchNamed(old.node)
	}
	if node == "" {
		return
	}
	if s.nominated == nil {
		s.nominated, s.nominees = map[types.UID]placed{}, map[string][]*Pod{}
	}
	s.nominated[pod.UID] = placed{pod, node}
	s.promise(pod, 1)
	list := append(slices.Clone(s.nominees[node]), pod)
	slices.SortStableFunc(list, func(a, b *Pod) int { return int(int64(b.Priority()) - int64(a.Priority())) })
	s.nominees[node] = list
	if n := s.byName[node]; n != nil {
		n.promised = list
	}
	s.touchNamed(node)
}

// promise counts the terms of a nominated pod.
func (s *Snapshot) promise(pod *Pod, by int) {
	if pod.Affinity == nil {
		return
	}
	for kind, terms := range pod.Affinity {
		if len(terms) > 0 {
			s.promised[kind] += by
		}
	}
}

func (s *Snapshot) touchNamed(node string) {
	s.generation++
	if n := s.byName[node]; n != nil {
		s.touch(n)
	}
}

// SetNamespace notes the labels of a namespace; nil labels are none.
func (c *Cluster) SetNamespace(name string, labels map[string]string) {
	s := &c.Snapshot
	old, known := s.namespaces[name]
	if known && maps.Equal(old, labels) {
		return
	}
	if s.namespaces == nil {
		s.namespaces = map[string]map[string]string{}
	}
	if labels == nil {
		labels = map[string]string{}
	}
	s.namespaces[name] = labels
	s.recount()
}

// DropNamespace removes a namespace.
func (c *Cluster) DropNamespace(name string) {
	s := &c.Snapshot
	if _, known := s.namespaces[name]; known {
		delete(s.namespaces, name)
		s.recount()
	}
}

// recount forgets what depends on the labels of namespaces.
func (s *Snapshot) recount() {
	s.generation++
	s.termSet++
	for id, t := range s.tallies {
		if t.of.wantsSpaces {
			s.forget(id, t)
		}
	}
}

// SetObject adds an object of another resource, or notes its new state.
func (c *Cluster) SetObject(r schema.GroupVersionResource, obj client.Object) {
	s := &c.Snapshot
	s.generation++
	o := s.objects[r]
	if o == nil {
		if s.objects == nil {
			s.objects = map[schema.GroupVersionResource]*objects{}
		}
		o = &objects{byName: map[types.NamespacedName]client.Object{}}
		s.objects[r] = o
	}
	o.byName[types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}] = obj
	o.sorted = nil
}

// DropObject removes an object.
func (c *Cluster) DropObject(r schema.GroupVersionResource, namespace, name string) {
	s := &c.Snapshot
	s.generation++
	if o := s.objects[r]; o != nil {
		delete(o.byName, types.NamespacedName{Namespace: namespace, Name: name})
		o.sorted = nil
	}
}

// keptTallies is the number of answers of Count that are kept. Each costs memory for the nodes that have
// such pods, and time for each such pod that comes or goes.
const keptTallies = 2048

// Trim forgets the answers that were asked for longest ago, if there are too many, and topologies in which nothing is counted
// any more. It must not be called while a Check or Scorer is in use.
func (c *Cluster) Trim() {
	s := &c.Snapshot
	if len(s.tallies) > keptTallies {
		uses := make([]uint64, 0, len(s.tallies))
		for _, t := range s.tallies {
			uses = append(uses, t.used)
		}
		slices.Sort(uses)
		oldest := uses[len(uses)-keptTallies/2]
		for id, t := range s.tallies {
			if t.used < oldest {
				s.forget(id, t)
			}
		}
	}
	inUse := len(s.tallies)
	for _, terms := range s.terms {
		inUse += len(terms)
	}
	if len(s.topologies) > inUse+fewTopologies {
		s.trimTopologies()
	}
}

// fewTopologies is how many topologies are kept although nothing is counted in them.
const fewTopologies = 64

func (s *Snapshot) trimTopologies() {
	used := make(map[*topology]bool, len(s.topologies))
	for _, t := range s.tallies {
		used[t.topo] = true
	}
	for _, terms := range s.terms {
		for _, t := range terms {
			used[t.topo] = true
		}
	}
	maps.DeleteFunc(s.topologies, func(_ string, t *topology) bool { return !used[t] })
}

// Copy returns a Cluster with the same content that shares nothing with this one but the objects.
func (c *Cluster) Copy() *Cluster {
	s, out := &c.Snapshot, &Cluster{}
	for _, n := range s.byName {
		if n.Node != nil {
			out.SetNode(n.Node)
		}
	}
	for _, p := range s.placed {
		out.Place(p.pod, p.node)
	}
	for _, p := range s.nominated {
		out.Nominate(p.pod, p.node)
	}
	for name, labels := range s.namespaces {
		out.SetNamespace(name, labels)
	}
	for r, o := range s.objects {
		for _, obj := range o.byName {
			out.SetObject(r, obj)
		}
	}
	// The same states must not have the same generations as in a cluster that goes its own way.
	out.Snapshot.generation += s.generation
	return out
}
