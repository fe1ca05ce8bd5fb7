package plugin

import "slices"

// A WhatIf takes pods out of a Snapshot and puts others in, for a while. It belongs to the
// scheduler; plug-ins have [Failure].
type WhatIf struct {
	c    *Cluster
	done []step
}

type step struct {
	pod    *Pod
	node   string
	put    bool
	before uint64 // generation of the node, which is that again when all that was done to it is undone
}

// WhatIf begins to try something. [WhatIf.Undo] ends it, before anything else changes the Cluster.
func (c *Cluster) WhatIf() *WhatIf { return &WhatIf{c: c} }

// Add puts a pod on a node.
func (w *WhatIf) Add(pod *Pod, node string) {
	before := w.c.Snapshot.generationOf(node)
	w.c.Snapshot.put(pod, node)
	w.note(step{pod, node, true, before})
}

// Remove takes a pod off its node.
func (w *WhatIf) Remove(pod *Pod, node string) {
	before := w.c.Snapshot.generationOf(node)
	w.c.Snapshot.take(pod, node)
	w.note(step{pod, node, false, before})
}

// note remembers a step, or forgets the one that it makes undone.
func (w *WhatIf) note(s step) {
	i := len(w.done) - 1
	for i >= 0 && (w.done[i].pod != s.pod || w.done[i].node != s.node) {
		i--
	}
	if i < 0 {
		w.done = append(w.done, s)
		return
	}
	undone := w.done[i]
	w.done = append(w.done[:i], w.done[i+1:]...)
	for i := range w.done {
		if d := &w.done[i]; d.node == s.node {
			// The first remaining change has the original state of the node.
			d.before = min(d.before, undone.before)
			return
		}
	}
	w.c.Snapshot.restored(undone)
}

// restored records that a node is as it was before a step.
func (s *Snapshot) restored(to step) {
	if n := s.byName[to.node]; n != nil && n.Node != nil {
		n.generation = to.before
	}
}

func (s *Snapshot) generationOf(node string) uint64 {
	if n := s.byName[node]; n != nil {
		return n.generation
	}
	return 0
}

// Undo restores the Cluster as it was when the WhatIf began.
func (w *WhatIf) Undo() {
	s := &w.c.Snapshot
	for _, d := range slices.Backward(w.done) {
		if d.put {
			s.take(d.pod, d.node)
		} else {
			s.put(d.pod, d.node)
		}
		s.restored(d)
	}
	w.done = w.done[:0]
}
