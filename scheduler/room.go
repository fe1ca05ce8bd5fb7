package scheduler

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// MakeRoom asks the PostFilters how a pod could get room, right after [Decider.Decide] found none; the
// Cluster must be unchanged since. The answer goes into the decision.
func (d *Decider) MakeRoom(ctx context.Context, q Question, to *Decision) {
	if to.Err != nil || to.Node != "" || to.Nodes == 0 || to.excess {
		return
	}
	try := d.work.cluster.WhatIf()
	f := &failed{d: d, q: q, decision: to, try: try}
	defer func() {
		r := recover()
		try.Undo()
		if r != nil {
			to.Err = &PanicError{d.ask, r, debug.Stack()}
		}
	}()
	for i := range d.postFilters {
		p := &d.postFilters[i]
		d.ask, f.by, f.name = p.name, p.at, p.name
		room, v := p.p.PostFilter(ctx, f)
		f.undo()
		switch v.Code {
		case plugin.Success:
			to.Room, to.After, to.roomGone = room, v.Reason, room.Node == ""
			if room.Write != nil {
				to.writes = append(to.writes, room.Write)
			}
			return
		case plugin.Unschedulable, plugin.Unresolvable:
			if room.Write != nil {
				to.writes = append(to.writes, room.Write)
			}
			if v.Reason != "" {
				if to.After != "" {
					to.After += ", "
				}
				to.After += v.Reason
			}
			if v.Code == plugin.Unresolvable {
				return // no other need be asked
			}
		case plugin.Skipped:
		case plugin.Wait, plugin.Failed:
			to.Err = failure(p.name, "PostFilter", v)
			return
		}
	}
}

// failed implements [plugin.Failure].
type failed struct {
	d        *Decider
	q        Question
	decision *Decision
	try      *plugin.WhatIf
	removed  []removal
	by       int    // the PostFilter that is asked
	name     string // its
}

type removal struct {
	pod  *plugin.Pod
	node string
}

func (f *failed) Pod() *plugin.Pod           { return f.q.Pod }
func (f *failed) Snapshot() *plugin.Snapshot { return &f.d.work.cluster.Snapshot }

func (f *failed) Verdict(n *plugin.Node) (plugin.Verdict, string) {
	v, by := f.verdict(n)
	f.d.ask = f.name // again
	return v, by
}

func (f *failed) verdict(n *plugin.Node) (plugin.Verdict, string) {
	if f.decision.before != "" {
		code := plugin.Unschedulable
		if f.decision.Hopeless() {
			code = plugin.Unresolvable
		}
		by := ""
		if names := f.d.Refusers(f.decision); len(names) > 0 {
			by = names[0]
		}
		return plugin.Verdict{Code: code, Reason: f.decision.before}, by
	}
	answer, err := f.d.filter(n)
	switch {
	case err != nil:
		return plugin.Fail(err), ""
	case answer == 0:
		if o := f.q.opinions; o != nil {
			return o.refused[n.Name], "" // the zero Verdict if they don't
		}
		return plugin.Verdict{}, ""
	}
	r := f.d.work.memo.table[answer-1]
	return r.verdict, f.d.plugins[r.by].Name()
}

func (f *failed) Hopeful() []*plugin.Node {
	w := &f.d.work
	if f.decision.before == "" && f.q.opinions == nil {
		return slices.Concat(w.hopeful[w.wrapped:], w.hopeful[:w.wrapped])
	}
	var out []*plugin.Node
	for _, n := range w.nodes {
		if v, _ := f.Verdict(n); v.Code == plugin.Unschedulable {
			out = append(out, n)
		}
	}
	return out
}

// keeps reports whether results about nodes are true for as long as they do not change, and for all pods of the
// signature: if nothing but filters was asked, which look at one node and the signature (plugin-P3).
func (f *failed) keeps(n *plugin.Node) bool {
	w := &f.d.work
	return f.q.Signature != "" && f.decision.before == "" && len(w.asked) == 0 && w.narrowed == nil && f.q.opinions == nil &&
		len(f.removed) == 0 && (len(f.Snapshot().Nominated(n)) == 0 || f.Snapshot().Nomination(f.q.Pod.UID) == "")
}

func (f *failed) Kept(n *plugin.Node) any {
	rooms := f.d.work.memo.rooms
	if n.Slot() < len(rooms) && f.keeps(n) {
		if k := &rooms[n.Slot()]; k.generation == n.Generation() && k.by == f.by {
			return k.what
		}
	}
	return nil
}

func (f *failed) Keep(n *plugin.Node, what any) {
	if !f.keeps(n) {
		return
	}
	m := f.d.work.memo
	if short := f.Snapshot().Slots() - len(m.rooms); short > 0 {
		m.rooms = append(m.rooms, make([]keptRoom, short)...)
	}
	m.rooms[n.Slot()] = keptRoom{n.Generation(), f.by, what}
}

func (f *failed) Fits(n *plugin.Node) plugin.Verdict {
	v, _ := f.Verdict(n)
	return v
}

func (f *failed) Remove(victim *plugin.Pod) {
	_, node, ok := f.Snapshot().Placed(victim.UID)
	if !ok {
		panic(fmt.Sprintf("pod %s/%s is not placed", victim.Namespace, victim.Name))
	}
	f.try.Remove(victim, node)
	f.d.work.trying = true
	f.removed = append(f.removed, removal{victim, node})
	if n := f.Snapshot().Node(node); n != nil {
		f.d.follow(victim, n, false)
		f.d.ask = f.name
	}
}

func (f *failed) Restore(victim *plugin.Pod) {
	for i, r := range f.removed {
		if r.pod == victim {
			f.removed = append(f.removed[:i], f.removed[i+1:]...)
			f.try.Add(r.pod, r.node)
			f.d.work.trying = len(f.removed) > 0
			if n := f.Snapshot().Node(r.node); n != nil {
				f.d.follow(victim, n, true)
				f.d.ask = f.name
			}
			return
		}
	}
	panic(fmt.Sprintf("pod %s/%s was not removed", victim.Namespace, victim.Name))
}

// undo restores the pods that the plug-in has not.
func (f *failed) undo() {
	for len(f.removed) > 0 {
		f.Restore(f.removed[len(f.removed)-1].pod)
	}
}
