package plugin

import (
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A topology divides the nodes into domains: those with the same value of a label.
type topology struct {
	key   string
	ids   map[string]int32
	names []string // by domain; "" may be a domain, too
	nodes []int32  // existing nodes, by domain
	of    []int32  // domain, by slot of the node; -1: none
	free  []int32  // domains without nodes
}

func newTopology(key string) *topology { return &topology{key: key, ids: map[string]int32{}} }

// domains returns the number of domains.
func (t *topology) domains() int { return len(t.names) - len(t.free) }

// domain returns the domain of a slot, or -1.
func (t *topology) domain(slot int32) int32 {
	if int(slot) < len(t.of) {
		return t.of[slot]
	}
	return -1
}

// set gives a slot the domain that the object has; nil has none.
func (t *topology) set(slot int32, obj *corev1.Node) {
	for int(slot) >= len(t.of) {
		t.of = append(t.of, -1)
	}
	old, fresh := t.of[slot], int32(-1)
	if obj != nil {
		if value, ok := obj.Labels[t.key]; ok {
			fresh = t.id(value)
			t.nodes[fresh]++
		}
	}
	t.of[slot] = fresh
	if old >= 0 {
		if t.nodes[old]--; t.nodes[old] == 0 {
			delete(t.ids, t.names[old])
			t.names[old] = ""
			t.free = append(t.free, old)
		}
	}
}

func (t *topology) id(value string) int32 {
	if id, ok := t.ids[value]; ok {
		return id
	}
	value = strings.Clone(value) // the object need not stay
	if n := len(t.free); n > 0 {
		id := t.free[n-1]
		t.free = t.free[:n-1]
		t.ids[value], t.names[id] = id, value
		return id
	}
	id := int32(len(t.names))
	t.ids[value] = id
	t.names, t.nodes = append(t.names, value), append(t.nodes, 0)
	return id
}

// Counts are numbers of pods, for each domain of a topology. They are kept current with the Snapshot.
type Counts struct {
	topo  *topology
	nodes NodeQuery

	perNode   map[int32]int32 // pods by slot, where there are any; on nodes that do not count, too
	perDomain []int32         // pods by domain, as far as there are any
	occupied  int             // domains with pods
	total     int             // in all domains

	domains map[int32]int32 // nodes that count, by domain; nil if all do
	counted []bool          // by slot: the node counts; nil if all do

	height map[int32]int32 // domains by their number of pods, where there are any
	least  int32           // key of height; 0 if it is empty
}

func newCounts(t *topology, nodes NodeQuery) *Counts {
	c := &Counts{topo: t, nodes: nodes, perNode: map[int32]int32{}, height: map[int32]int32{}}
	if nodes.Key != "" {
		c.domains = map[int32]int32{}
	}
	return c
}

// At returns the number of pods in the domain of the node, which is 0 if it is in none.
func (c *Counts) At(n *Node) int {
	return int(c.in(c.topo.domain(n.slot)))
}

// in returns the number of pods in a domain; -1 is none.
func (c *Counts) in(d int32) int32 {
	if uint(d) < uint(len(c.perDomain)) {
		return c.perDomain[d]
	}
	return 0
}

// Here returns the number of pods on the node itself, whether or not it counts.
func (c *Counts) Here(n *Node) int { return int(c.perNode[n.slot]) }

// In reports whether the node is in a domain, whether or not it counts.
func (c *Counts) In(n *Node) bool { return c.topo.domain(n.slot) >= 0 }

// Has reports whether the node is in a domain, and counts.
func (c *Counts) Has(n *Node) bool {
	return c.topo.domain(n.slot) >= 0 && c.counts(n.slot)
}

// Total returns the number of pods in all domains.
func (c *Counts) Total() int { return c.total }

// Domains returns the number of domains with a node that counts.
func (c *Counts) Domains() int {
	if c.domains != nil {
		return len(c.domains)
	}
	return c.topo.domains()
}

// Min returns the number of pods in the domain that has the fewest; 0 if there is no domain.
func (c *Counts) Min() int {
	if c.Domains() > c.occupied {
		return 0
	}
	return int(c.least)
}

// Each yields the domains that have pods, by name. It costs as much as there are domains.
func (c *Counts) Each() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		names := make([]string, 0, c.occupied)
		for d, pods := range c.perDomain {
			if pods != 0 {
				names = append(names, c.topo.names[d])
			}
		}
		slices.Sort(names)
		for _, name := range names {
			if !yield(name, int(c.in(c.topo.ids[name]))) {
				return
			}
		}
	}
}

func (c *Counts) counts(slot int32) bool {
	return c.domains == nil || int(slot) < len(c.counted) && c.counted[slot]
}

// add counts n more pods on the node of a slot.
func (c *Counts) add(slot, n int32) {
	if c.perNode[slot] += n; c.perNode[slot] == 0 {
		delete(c.perNode, slot)
	}
	c.move(slot, n)
}

// move counts n more pods in the domain of a slot.
func (c *Counts) move(slot, n int32) {
	d := c.topo.domain(slot)
	if d < 0 || n == 0 || !c.counts(slot) {
		return
	}
	c.total += int(n)
	if short := int(d) + 1 - len(c.perDomain); short > 0 {
		c.perDomain = append(c.perDomain, make([]int32, short)...)
	}
	old := c.perDomain[d]
	fresh := old + n
	c.perDomain[d] = fresh
	if fresh == 0 {
		c.occupied--
	} else {
		c.height[fresh]++
	}
	if old == 0 {
		c.occupied++
	} else {
		if c.height[old]--; c.height[old] == 0 {
			delete(c.height, old)
		}
	}
	switch {
	case len(c.height) == 0:
		c.least = 0
	case fresh != 0 && (c.least == 0 || fresh < c.least):
		c.least = fresh
	case c.height[c.least] != 0:
	case n == 1:
		c.least = fresh // the last of the lowest went up by one
	default:
		c.least = 0
		for h := range c.height {
			if c.least == 0 || h < c.least {
				c.least = h
			}
		}
	}
}

// leave takes the node of a slot out, before it changes.
func (c *Counts) leave(slot int32) {
	c.move(slot, -c.perNode[slot])
	if d := c.topo.domain(slot); c.domains != nil && d >= 0 && c.counts(slot) {
		if c.domains[d]--; c.domains[d] == 0 {
			delete(c.domains, d)
		}
	}
}

// enter takes the node of a slot in, after it changed; nil: it does not exist.
func (c *Counts) enter(slot int32, obj *corev1.Node) {
	if c.domains != nil {
		for int(slot) >= len(c.counted) {
			c.counted = append(c.counted, false)
		}
		c.counted[slot] = obj != nil && c.nodes.Match(obj)
		if d := c.topo.domain(slot); d >= 0 && c.counted[slot] {
			c.domains[d]++
		}
	}
	c.move(slot, c.perNode[slot])
}
