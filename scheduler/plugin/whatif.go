package plugin

// A WhatIf takes pods out of a Snapshot and puts others in, for a while. It belongs to the
// scheduler; plug-ins have [Failure].
type WhatIf struct {
	c    *Cluster
	done []step
}

type step struct {
	pod  *Pod
	node string
	put  bool
}

// WhatIf begins to try something. [WhatIf.Undo] ends it, before anything else changes the Cluster.
func (c *Cluster) WhatIf() *WhatIf { return &WhatIf{c: c} }

// Add puts a pod on a node.
func (w *WhatIf) Add(pod *Pod, node string) {
	w.c.Snapshot.put(pod, node)
	w.note(step{pod, node, true})
}

// Remove takes a pod off its node.
func (w *WhatIf) Remove(pod *Pod, node string) {
	w.c.Snapshot.take(pod, node)
	w.note(step{pod, node, false})
}

// note remembers a step, or forgets the one that it makes undone.
func (w *WhatIf) note(s step) {
	for i := len(w.done) - 1; i >= 0; i-- {
		if w.done[i].pod == s.pod && w.done[i].node == s.node {
			w.done = append(w.done[:i], w.done[i+1:]...)
			return
		}
	}
	w.done = append(w.done, s)
}

// Undo makes the Cluster what it was when the WhatIf began.
func (w *WhatIf) Undo() {
	s := &w.c.Snapshot
	for i := len(w.done) - 1; i >= 0; i-- {
		if d := w.done[i]; d.put {
			s.take(d.pod, d.node)
		} else {
			s.put(d.pod, d.node)
		}
	}
	w.done = w.done[:0]
}
