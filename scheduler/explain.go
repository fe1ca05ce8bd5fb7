package scheduler

import (
	"context"
	"runtime/debug"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// An Explanation is a decision with everything that led to it.
type Explanation struct {
	Decision // with all nodes asked, and room looked for if none fits
	ByNode   []NodeExplanation
}

// A NodeExplanation is what plug-ins say of one node.
type NodeExplanation struct {
	Node    string
	Verdict plugin.Verdict
	Plugin  string        // that refused
	Lacks   []plugin.Lack // amounts, if the plug-in is a [plugin.Explainer]
	Scores  []PluginScore // if it fits
	Total   int64         // the weighted sum of them
}

// A PluginScore is the score of a plug-in after normalisation.
type PluginScore struct {
	Plugin string
	Score  int64
	Weight int64
}

// Explain decides about a pod and returns the verdict on each node, in the order of [plugin.Snapshot.Nodes]. Unlike
// [Decider.Decide] it visits all nodes.
func (d *Decider) Explain(ctx context.Context, c *plugin.Cluster, pod *plugin.Pod) (out Explanation) {
	share := d.Share
	d.Share = 100
	defer func() {
		d.Share = share
		if r := recover(); r != nil {
			out.Err = &PanicError{d.ask, r, debug.Stack()}
		}
	}()
	q := Question{Pod: pod}
	nominated := c.Snapshot.Nomination(pod.UID)
	if nominated != "" {
		c.Nominate(pod, "") // or that node alone is looked at
		defer c.Nominate(pod, nominated)
	}
	out.Decision = d.Decide(ctx, c, q)
	if out.Err != nil {
		return out
	}
	w := &d.work
	f := &failed{d: d, q: q, decision: &out.Decision}
	if out.Node != "" {
		// One node that fits is not ranked in a decision.
		if _, out.Err = d.score(ctx); out.Err != nil {
			return out
		}
		scores := d.each()
		clear(w.skip)
		d.prepare(ctx, &out.Decision)
		for _, n := range w.nodes {
			e := NodeExplanation{Node: n.Name}
			for i, fit := range w.fit {
				if fit == n {
					e.Scores, e.Total = scores[i], w.sums[i]
				}
			}
			d.refusal(f, n, &e)
			out.ByNode = append(out.ByNode, e)
		}
		return out
	}
	for _, n := range w.nodes {
		e := NodeExplanation{Node: n.Name}
		d.refusal(f, n, &e)
		out.ByNode = append(out.ByNode, e)
	}
	d.MakeRoom(ctx, q, &out.Decision)
	return out
}

// each returns the scores of the nodes in w.fit, after d.score.
func (d *Decider) each() [][]PluginScore {
	w := &d.work
	out := make([][]PluginScore, len(w.fit))
	add := func(at int, scorer any) {
		if n, ok := scorer.(plugin.Normalizer); ok {
			n.Normalize(w.fit, w.column)
		}
		for i, s := range w.column {
			out[i] = append(out[i], PluginScore{d.plugins[at].Name(), s, d.weight(at)})
		}
	}
	for i := range d.scores {
		p := &d.scores[i]
		if w.skip[p.at] || w.scorers[p.at] != nil {
			continue
		}
		w.memo.scores(i, p.p, w.pod, w.fit, w.column)
		add(p.at, p.p)
	}
	for _, at := range d.scorers {
		if scorer := w.scorers[at]; scorer != nil {
			for i, n := range w.fit {
				w.column[i] = scorer.Score(n)
			}
			add(at, scorer)
		}
	}
	return out
}

// refusal fills in why a node refuses, if it does.
func (d *Decider) refusal(f *failed, n *plugin.Node, e *NodeExplanation) {
	e.Verdict, e.Plugin = f.Verdict(n)
	if !e.Verdict.Refused() {
		return
	}
	for at, entry := range d.plugins {
		if entry.Name() != e.Plugin {
			continue
		}
		d.ask = e.Plugin
		if c, ok := d.work.checks[at].(plugin.CheckExplainer); ok {
			e.Lacks = c.Explain(n)
		} else if p, ok := entry.Plugin.(plugin.Explainer); ok {
			e.Lacks = p.Explain(f.q.Pod, n)
		}
	}
}
