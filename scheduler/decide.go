package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// Limits to how many nodes that fit are looked for; see [Decider.Share]. The numbers are upstream's.
const (
	enough      = 100 // in any case
	mostShare   = 50  // per cent, of a small cluster
	leastShare  = 5   // per cent, of the largest
	shareFaller = 125 // nodes for which the share falls by one per cent
)

// A Decider decides with one set of plug-ins. Its answers depend on the arguments alone: it
// caches the answers of plug-ins about a node until the node changes. It is not safe for
// concurrent use.
type Decider struct {
	// Share is the part of the nodes, in per cent, that have to fit before no more are looked
	// for, but always a hundred of them; 0 means that it depends on the size of the cluster, from
	// 50 to 5 (percentageOfNodesToScore).
	Share int

	plugins []plugin.Entry // with a say in decisions; points below are indexes of it

	preFilters  []named[plugin.PreFilter]
	uncalled    []error                // of each PreFilter, why it must not return a nil Check; nil if it may
	filters     []named[plugin.Filter] // asked about nodes by themselves
	checkers    []int                  // asked through their Check
	postFilters []named[plugin.PostFilter]
	preScores   []named[plugin.PreScore]
	scores      []named[plugin.Score]
	scorers     []int

	// The cached answers are of one cluster: generations of another mean something else.
	cluster *plugin.Cluster
	memos   memos

	// The last refusal.
	refusedAt uint64
	refusedOf plugin.Signature
	refusedAs Decision

	work work
	ask  string // the plug-in that is being asked
}

// named is a plug-in at a point.
type named[T any] struct {
	p    T
	at   int // in plugins
	name string
}

// NewDecider returns a Decider for a valid set.
func NewDecider(set plugin.Set) (*Decider, error) {
	if err := set.Validate(); err != nil {
		return nil, err
	}
	d := &Decider{plugins: set.Entries}
	index := func(e plugin.Entry) int { return set.Find(e.Name()) }
	for _, e := range set.At(plugin.AtPreFilter) {
		if p, ok := e.Plugin.(plugin.PreFilter); ok {
			d.preFilters = append(d.preFilters, named[plugin.PreFilter]{p, index(e), e.Name()})
			d.uncalled = append(d.uncalled, plugin.ValidateNoCheck(e.Plugin))
		}
	}
	for _, e := range set.At(plugin.AtFilter) {
		if p, ok := e.Plugin.(plugin.Filter); ok {
			d.filters = append(d.filters, named[plugin.Filter]{p, index(e), e.Name()})
		}
		if _, ok := e.Plugin.(plugin.PreFilter); ok {
			d.checkers = append(d.checkers, index(e))
		}
	}
	for _, e := range set.At(plugin.AtPostFilter) {
		if p, ok := e.Plugin.(plugin.PostFilter); ok {
			d.postFilters = append(d.postFilters, named[plugin.PostFilter]{p, index(e), e.Name()})
		}
	}
	for _, e := range set.At(plugin.AtPreScore) {
		if p, ok := e.Plugin.(plugin.PreScore); ok {
			d.preScores = append(d.preScores, named[plugin.PreScore]{p, index(e), e.Name()})
		}
	}
	for _, e := range set.At(plugin.AtScore) {
		if p, ok := e.Plugin.(plugin.Score); ok {
			d.scores = append(d.scores, named[plugin.Score]{p, index(e), e.Name()})
		}
		if _, ok := e.Plugin.(plugin.PreScore); ok {
			d.scorers = append(d.scorers, index(e))
		}
	}
	d.work.checks = make([]plugin.Check, len(d.plugins))
	d.work.scorers = make([]plugin.Scorer, len(d.plugins))
	d.work.skip = make([]bool, len(d.plugins))
	return d, nil
}

// A Question is a pod to decide about.
type Question struct {
	Pod  *plugin.Pod
	From int // index in [plugin.Snapshot.Nodes] where to begin to look, to be fair to all

	// Signature is the pod's, if equal pods are likely to be asked about: then answers
	// of plug-ins are kept. It makes no difference to the decision.
	Signature plugin.Signature

	asks     bool      // extenders are to be asked about the nodes that fit
	opinions *opinions // or have been
}

// work is the memory of one decision, kept to allocate it once.
type work struct {
	pod       *plugin.Pod
	cluster   *plugin.Cluster
	nodes     []*plugin.Node
	checks    []plugin.Check  // by plug-in
	scorers   []plugin.Scorer // by plug-in
	skip      []bool          // by plug-in
	asked     []int           // the checkers that have a check
	memo      *memo
	narrowed  map[string]bool // nil: not
	narrowers []string
	opinions  *opinions
	outside   int32 // memo's answer for nodes that narrowing excludes; 0: not known yet
	counts    []int // nodes by refusal of memo.table
	fit       []*plugin.Node
	hopeful   []*plugin.Node // that refuse, but might not without other pods; in the order of the search
	wrapped   int            // of hopeful, those before the search came to the first node
	trying    bool           // pods are missing, for a while: answers are not kept
	sums      []int64
	column    []int64
}

// Decide returns the node with the best score among the nodes that no plug-in refuses, or the first of several with the
// same score. It visits the nodes in turn, beginning at q.From, until enough of them fit. A node that the pod is nominated
// to is visited first, and chosen if it fits. Decide leaves the Cluster as it is. It does not call PostFilter: see
// [Decider.MakeRoom].
func (d *Decider) Decide(ctx context.Context, c *plugin.Cluster, q Question) (out Decision) {
	defer func() {
		if r := recover(); r != nil {
			out = Decision{Nodes: out.Nodes, Next: q.From, Err: &PanicError{d.ask, r, debug.Stack()}}
		}
	}()
	s := &c.Snapshot
	w := &d.work
	w.trying, w.hopeful = false, w.hopeful[:0]
	w.pod, w.cluster, w.nodes, w.opinions = q.Pod, c, s.Nodes(), q.opinions
	d.keepOf(c)
	out = Decision{Nodes: len(w.nodes), Next: q.From}
	if len(w.nodes) == 0 {
		return out
	}
	if q.Pod.Excess != "" {
		out.before, out.final, out.excess = q.Pod.Excess, out.Nodes, true
		return out
	}
	if !d.prepare(ctx, &out) {
		return out
	}
	w.memo = d.memos.get(d, s, q.Signature)
	w.counts = append(w.counts[:0], make([]int, len(w.memo.table))...)
	w.fit = w.fit[:0]
	w.outside = 0
	if name := s.Nomination(q.Pod.UID); name != "" {
		if n := s.Node(name); n != nil {
			answer, err := d.filter(n)
			if err != nil {
				out.Err = err
				return out
			}
			if answer == 0 {
				w.fit = append(w.fit, n)
			}
		}
	}
	if len(w.fit) == 0 {
		if out.Err = d.search(&out, q.From); out.Err != nil {
			return out
		}
	}
	if q.opinions != nil {
		d.applyOpinions(q.opinions)
	}
	if len(w.fit) == 0 {
		d.tally(&out)
		return out
	}
	if q.asks && q.opinions == nil {
		for _, n := range w.fit {
			out.ask = append(out.ask, n.Node)
		}
		return out
	}
	if out.Node, out.Score, out.Err = d.rank(ctx); out.Err == nil {
		out.checks = d.keptChecks()
	}
	return out
}

// DecideAll is [Decider.Decide] and, if that found no node, [Decider.MakeRoom]. A refusal is remembered: it
// holds for every pod of the same signature until the Cluster changes (plugin-P3).
func (d *Decider) DecideAll(ctx context.Context, c *plugin.Cluster, q Question) Decision {
	d.keepOf(c)
	remembered := q.Signature != "" && !q.asks && c.Snapshot.Nomination(q.Pod.UID) == ""
	generation := c.Snapshot.Generation()
	if remembered && d.refusedAt == generation && d.refusedOf == q.Signature {
		return d.refusedAs
	}
	out := d.Decide(ctx, c, q)
	if out.Node != "" || out.Err != nil || out.ask != nil || out.excess {
		return out
	}
	d.MakeRoom(ctx, q, &out)
	if remembered && out.Err == nil && out.Room.Node == "" && !out.roomGone && out.writes == nil {
		// A trial that was undone has increased the generation of the same state.
		d.refusedAt, d.refusedOf, d.refusedAs = c.Snapshot.Generation(), q.Signature, out
	}
	return out
}

// keepOf forgets the results kept of another cluster.
func (d *Decider) keepOf(c *plugin.Cluster) {
	if d.cluster != c {
		d.cluster, d.memos, d.refusedOf, d.refusedAs = c, memos{}, "", Decision{}
	}
}

// prepare asks the PreFilters and reports whether nodes have to be asked about.
func (d *Decider) prepare(ctx context.Context, out *Decision) bool {
	w := &d.work
	clear(w.checks)
	clear(w.skip)
	w.asked, w.narrowed, w.narrowers = w.asked[:0], nil, w.narrowers[:0]
	for i := range d.preFilters {
		f := &d.preFilters[i]
		d.ask = f.name
		check, v := f.p.PreFilter(ctx, w.pod, &w.cluster.Snapshot)
		switch v.Code {
		case plugin.Success:
			if lost := d.uncalled[i]; check == nil && lost != nil {
				out.Err = failure(f.name, "PreFilter", plugin.Fail(lost))
				return false
			}
			w.checks[f.at] = check
			if narrower, ok := check.(plugin.Narrower); ok {
				w.narrow(narrower, f.name)
				if len(w.narrowed) == 0 && w.narrowed != nil {
					out.before, out.refusers = fmt.Sprintf("node(s) didn't satisfy plugin(s) %v simultaneously", w.narrowers), bit(f.at)
					if len(w.narrowers) == 1 {
						out.before = fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", w.narrowers)
					}
					out.final = out.Nodes
					return false
				}
			}
		case plugin.Skipped:
			w.skip[f.at] = true
		case plugin.Unschedulable, plugin.Unresolvable:
			out.before, out.refusers = v.Reason, bit(f.at)
			for _, r := range v.Also {
				out.before += ", " + r
			}
			if v.Code == plugin.Unresolvable {
				out.final = out.Nodes
			}
			return false
		case plugin.Wait, plugin.Failed:
			out.Err = failure(f.name, "PreFilter", v)
			return false
		}
	}
	for _, at := range d.checkers {
		if w.checks[at] != nil {
			w.asked = append(w.asked, at)
		}
	}
	return true
}

// narrow notes the nodes that come into question.
func (w *work) narrow(n plugin.Narrower, name string) {
	nodes, narrow := n.Narrow()
	if !narrow {
		return
	}
	w.narrowers = append(w.narrowers, name)
	fresh := make(map[string]bool, len(nodes))
	for _, node := range nodes {
		if (w.narrowed == nil || w.narrowed[node]) && w.cluster.Snapshot.Node(node) != nil {
			fresh[node] = true
		}
	}
	w.narrowed = fresh
}

// wanted returns the number of nodes that have to fit before no more are looked for.
func (d *Decider) wanted(nodes int) int {
	share := d.Share
	if share == 0 {
		share = max(leastShare, mostShare-nodes/shareFaller)
	}
	return max(enough, nodes*share/100)
}

// search fills w.fit.
func (d *Decider) search(out *Decision, from int) error {
	w := &d.work
	w.hopeful, w.wrapped = w.hopeful[:0], 0
	wanted := d.wanted(len(w.nodes))
	if len(d.scores)+len(d.scorers) == 0 && w.opinions == nil {
		wanted = 1 // all are equal
	}
	at := from % len(w.nodes)
	for range w.nodes {
		n := w.nodes[at]
		if at == 0 {
			w.wrapped = len(w.hopeful)
		}
		if at++; at == len(w.nodes) {
			at = 0
		}
		answer, err := d.filter(n)
		if err != nil {
			return err
		}
		if answer != 0 {
			w.count(answer)
			if w.memo.table[answer-1].verdict.Code == plugin.Unschedulable {
				w.hopeful = append(w.hopeful, n)
			}
			continue
		}
		if w.fit = append(w.fit, n); len(w.fit) == wanted {
			break
		}
	}
	out.Next = at
	return nil
}

func (w *work) count(answer int32) {
	for int(answer) > len(w.counts) {
		w.counts = append(w.counts, 0)
	}
	w.counts[answer-1]++
}

// filter returns 0 if the node fits, and otherwise the number of the refusal in memo.table, from 1 on.
// Pods of the same or higher priority that are promised room on the node count on it, if the pod does not
// fit with them; but it must fit without them, too, since they may end up elsewhere.
func (d *Decider) filter(n *plugin.Node) (int32, error) {
	w := &d.work
	if w.narrowed != nil && !w.narrowed[n.Name] {
		if w.outside == 0 {
			v := plugin.Never(fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", w.narrowers))
			w.outside = w.memo.number(v, d.pluginNamed(w.narrowers[0]))
		}
		return w.outside, nil
	}
	promised := w.cluster.Snapshot.Nominated(n)
	if len(promised) == 0 {
		return d.filterAsIs(n, !w.trying)
	}
	// If filters alone decide, their answer is as good as others for as long as the node does not change.
	keep := len(w.asked) == 0 && !w.trying && w.cluster.Snapshot.Nomination(w.pod.UID) == ""
	if keep {
		if answer, known := w.memo.answer(n); known {
			return answer, nil
		}
	}
	answer, err := d.filterPromised(n, promised)
	if keep && err == nil {
		w.memo.keep(n, answer)
	}
	return answer, err
}

func (d *Decider) pluginNamed(name string) int {
	for i, e := range d.plugins {
		if e.Name() == name {
			return i
		}
	}
	return 0
}

func (d *Decider) filterPromised(n *plugin.Node, promised []*plugin.Pod) (int32, error) {
	w := &d.work
	try := w.cluster.WhatIf()
	defer func() {
		try.Undo()
	}()
	added := false
	for _, p := range promised {
		if p.UID != w.pod.UID && p.Priority() >= w.pod.Priority() {
			try.Add(p, n.Name)
			d.follow(p, n, true)
			added = true
		}
	}
	if added {
		answer, err := d.filterAsIs(n, false)
		for _, p := range promised {
			if p.UID != w.pod.UID && p.Priority() >= w.pod.Priority() {
				try.Remove(p, n.Name)
				d.follow(p, n, false)
			}
		}
		if answer != 0 || err != nil {
			return answer, err
		}
	}
	return d.filterAsIs(n, false)
}

// follow passes a pod that was added to or removed from a node to the checks that implement [plugin.Follower].
func (d *Decider) follow(p *plugin.Pod, n *plugin.Node, came bool) {
	for _, at := range d.work.asked {
		if f, ok := d.work.checks[at].(plugin.Follower); ok {
			d.ask = d.plugins[at].Name()
			if came {
				f.PodAdded(p, n)
			} else {
				f.PodRemoved(p, n)
			}
		}
	}
}

// filterAsIs asks about a node as it is. With keeps, earlier answers of filters are used. The cached
// answers about a node with nominated pods count these pods as placed.
func (d *Decider) filterAsIs(n *plugin.Node, keeps bool) (int32, error) {
	w := &d.work
	answer, known := int32(0), false
	if keeps {
		answer, known = w.memo.answer(n)
	}
	if !known {
		var err error
		if answer, err = d.filterAlone(n); err != nil {
			return 0, err
		}
		if keeps {
			w.memo.keep(n, answer)
		}
	}
	if answer != 0 {
		return answer, nil
	}
	for _, at := range w.asked {
		d.ask = d.plugins[at].Name()
		switch v := w.checks[at].Filter(n); v.Code {
		case plugin.Success:
		case plugin.Unschedulable, plugin.Unresolvable:
			return w.memo.number(v, at), nil
		case plugin.Wait, plugin.Skipped, plugin.Failed:
			return 0, failure(d.ask, "Filter", v)
		}
	}
	return 0, nil
}

// filterAlone asks what depends on the node and the pod alone.
func (d *Decider) filterAlone(n *plugin.Node) (int32, error) {
	w := &d.work
	for i := range d.filters {
		f := &d.filters[i]
		if w.skip[f.at] || w.checks[f.at] != nil {
			continue
		}
		d.ask = f.name
		switch v := f.p.Filter(w.pod, n); v.Code {
		case plugin.Success:
		case plugin.Unschedulable, plugin.Unresolvable:
			return w.memo.number(v, f.at), nil
		case plugin.Wait, plugin.Skipped, plugin.Failed:
			return 0, failure(f.name, "Filter", v)
		}
	}
	return 0, nil
}

// rank returns the best of w.fit.
func (d *Decider) rank(ctx context.Context) (string, int64, error) {
	w := &d.work
	if len(w.fit) == 1 || len(d.scores)+len(d.scorers) == 0 && w.opinions == nil {
		return w.fit[0].Name, plugin.MaxScore, nil
	}
	weights, err := d.score(ctx)
	if err != nil {
		return "", 0, err
	}
	if w.opinions != nil {
		for i, n := range w.fit {
			w.sums[i] += w.opinions.scores[n.Name]
		}
	}
	best := 0
	for i, s := range w.sums {
		if s > w.sums[best] {
			best = i
		}
	}
	score := w.sums[best]
	if weights > 0 {
		score /= weights
	}
	return w.fit[best].Name, score, nil
}

// score fills w.sums and returns the sum of the weights that count.
func (d *Decider) score(ctx context.Context) (weights int64, err error) {
	w := &d.work
	clear(w.scorers)
	clear(w.skip)
	for i := range d.preScores {
		p := &d.preScores[i]
		d.ask = p.name
		scorer, v := p.p.PreScore(ctx, w.pod, &w.cluster.Snapshot, w.fit)
		switch v.Code {
		case plugin.Success:
			w.scorers[p.at] = scorer
		case plugin.Skipped:
			w.skip[p.at] = true
		case plugin.Unschedulable, plugin.Unresolvable, plugin.Wait, plugin.Failed:
			return 0, failure(p.name, "PreScore", v)
		}
	}
	n := len(w.fit)
	w.sums = sized(w.sums, n)
	clear(w.sums)
	w.column = sized(w.column, n)
	for i := range d.scores {
		p := &d.scores[i]
		if w.skip[p.at] || w.scorers[p.at] != nil {
			continue
		}
		d.ask = p.name
		w.memo.scores(i, p.p, w.pod, w.fit, w.column)
		if err := d.weigh(p.p, p.at); err != nil {
			return 0, err
		}
		weights += d.weight(p.at)
	}
	for _, at := range d.scorers {
		scorer := w.scorers[at]
		if scorer == nil {
			continue
		}
		d.ask = d.plugins[at].Name()
		for i, node := range w.fit {
			w.column[i] = scorer.Score(node)
		}
		if err := d.weigh(scorer, at); err != nil {
			return 0, err
		}
		weights += d.weight(at)
	}
	return weights, nil
}

func (d *Decider) weight(at int) int64 { return max(1, d.plugins[at].Weight) }

// weigh adds the scores of a plug-in, which are in w.column, to the sums.
func (d *Decider) weigh(scorer any, at int) error {
	w := &d.work
	if n, ok := scorer.(plugin.Normalizer); ok {
		n.Normalize(w.fit, w.column)
	}
	weight := d.weight(at)
	for i, s := range w.column {
		if s < 0 || s > plugin.MaxScore {
			return fmt.Errorf("plug-in %q gave node %s the score %d, want 0 to %d", d.plugins[at].Name(), w.fit[i].Name, s, plugin.MaxScore)
		}
		w.sums[i] += s * weight
	}
	return nil
}

// applyOpinions drops the nodes that extenders refuse, and the nodes that they have not been asked about.
func (d *Decider) applyOpinions(o *opinions) {
	w := &d.work
	left := w.fit[:0]
	for _, n := range w.fit {
		switch v, no := o.refused[n.Name]; {
		case no:
			w.count(w.memo.number(v, byExtender))
		case o.nodes[n.Name]:
			left = append(left, n)
		default:
			w.count(w.memo.number(plugin.Refuse("node(s) were not known to an extender yet"), byExtender))
		}
	}
	w.fit = left
}

// byExtender is in the place of a plug-in's number.
const byExtender = -1

func sized(s []int64, n int) []int64 {
	if cap(s) < n {
		return make([]int64, n)
	}
	return s[:n]
}

// tally writes the reasons why nodes were refused into the decision.
func (d *Decider) tally(out *Decision) {
	w := &d.work
	for i, n := range w.counts {
		if n == 0 {
			continue
		}
		r := &w.memo.table[i]
		if r.by != byExtender {
			out.refusers |= bit(r.by)
		} else {
			out.extended = true
		}
		r.verdict.Each(func(reason string) { out.count(reason, n) })
		if r.verdict.Code == plugin.Unresolvable {
			out.final += n
		}
	}
}

// keptChecks returns the checks that later points want back, by plug-in; nil if there are none.
func (d *Decider) keptChecks() map[string]plugin.Check {
	var kept map[string]plugin.Check
	for at, c := range d.work.checks {
		if c == nil {
			continue
		}
		const later = plugin.AtReserve | plugin.AtPermit | plugin.AtPreBind | plugin.AtBind | plugin.AtPostBind
		if e := d.plugins[at]; e.Points()&later != 0 {
			if kept == nil {
				kept = map[string]plugin.Check{}
			}
			kept[e.Name()] = c
		}
	}
	return kept
}

// bit is a plug-in in a set of them. Sets with more than 64 plug-ins share the last.
func bit(at int) uint64 { return 1 << min(at, 63) }

// Refusers returns the names of the plug-ins that refused, for a decision of this Decider.
func (d *Decider) Refusers(of *Decision) []string {
	var names []string
	for at, e := range d.plugins {
		if of.refusers&bit(at) != 0 {
			names = append(names, e.Name())
		}
	}
	return names
}

func failure(name, point string, v plugin.Verdict) error {
	if p := (*PanicError)(nil); errors.As(v.Err, &p) {
		return p
	}
	if v.Code == plugin.Failed && v.Err != nil {
		return fmt.Errorf("plug-in %q, %s: %w", name, point, v.Err)
	}
	return fmt.Errorf("plug-in %q, %s: returned %v, which is not a valid verdict at this point", name, point, v)
}

// A PanicError is a plug-in that panicked.
type PanicError struct {
	Plugin string
	Value  any
	Stack  []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("plug-in %q panicked: %v", e.Plugin, e.Value) }

// maxAnswers is the number of different refusals that a memo knows.
const maxAnswers = math.MaxInt16
