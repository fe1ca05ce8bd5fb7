package scheduler

import (
	"slices"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// A memo keeps what plug-ins answered about nodes, for pods of one signature (plugin-P3): an answer is good for
// as long as the node is of the same generation.
type memo struct {
	table   []refusal
	filters []kept // by slot
	scored  []column
	rooms   []keptRoom // by slot; as far as PostFilters keep anything
	used    uint64
}

// kept is the answer of the filters: 0, or the number of a refusal from 1 on.
type kept struct {
	generation uint64
	answer     int32
}

// keptRoom is a PostFilter's kept result for a node.
type keptRoom struct {
	generation uint64
	by         int // the PostFilter
	what       any
}

// A column is the raw scores of one plug-in by slot.
type column []struct {
	generation uint64
	score      int64
}

// A refusal is a verdict and the plug-in that gave it.
type refusal struct {
	verdict plugin.Verdict
	by      int
}

// number returns the number of a refusal.
func (m *memo) number(v plugin.Verdict, by int) int32 {
	for i := range m.table {
		if r := &m.table[i]; r.by == by && r.verdict.Code == v.Code && r.verdict.Reason == v.Reason && slices.Equal(r.verdict.Also, v.Also) {
			return int32(i) + 1
		}
	}
	if len(m.table) == maxAnswers {
		return maxAnswers // texts that differ for each node (plugin-P5): the last stands for the rest
	}
	m.table = append(m.table, refusal{v, by})
	return int32(len(m.table))
}

func (m *memo) answer(n *plugin.Node) (int32, bool) {
	if at := n.Slot(); at < len(m.filters) {
		k := m.filters[at]
		return k.answer, k.generation == n.Generation()
	}
	return 0, false
}

func (m *memo) keep(n *plugin.Node, answer int32) {
	if at := n.Slot(); at < len(m.filters) {
		m.filters[at] = kept{n.Generation(), answer}
	}
}

// scores fills in the raw scores of the plug-in with index i among the scores.
func (m *memo) scores(i int, p plugin.Score, pod *plugin.Pod, nodes []*plugin.Node, into []int64) {
	if i >= len(m.scored) {
		for at, n := range nodes {
			into[at] = p.Score(pod, n)
		}
		return
	}
	c := m.scored[i]
	for at, n := range nodes {
		k := &c[n.Slot()]
		if k.generation != n.Generation() {
			k.generation, k.score = n.Generation(), p.Score(pod, n)
		}
		into[at] = k.score
	}
}

// memos are the kept answers, by signature and by skipped plug-ins.
type memos struct {
	bySignature map[memoKey]*memo
	none        memo
	uses        uint64
	last        memoKey
	lastMemo    *memo
}

type memoKey struct {
	signature plugin.Signature
	skipped   uint64
}

// keptEntries bounds the memory of a Decider: nodes times signatures.
const keptEntries = 200_000

// get returns the memo for a signature; without one, an empty memo that keeps nothing.
func (m *memos) get(d *Decider, s *plugin.Snapshot, signature plugin.Signature) *memo {
	if signature == "" {
		m.none.table = m.none.table[:0]
		return &m.none
	}
	key := memoKey{signature: signature}
	for i := range d.filters {
		if f := &d.filters[i]; d.work.skip[f.at] || d.work.checks[f.at] != nil {
			key.skipped |= 1 << min(i, 63)
		}
	}
	m.uses++
	k := m.lastMemo
	if k == nil || m.last != key {
		k = m.bySignature[key]
	}
	if k == nil {
		if len(m.bySignature) >= max(4, keptEntries/max(1, s.Slots())) {
			m.forget()
		}
		if m.bySignature == nil {
			m.bySignature = map[memoKey]*memo{}
		}
		k = &memo{scored: make([]column, len(d.scores))}
		m.bySignature[key] = k
	}
	m.last, m.lastMemo = key, k
	k.used = m.uses
	if len(k.table) > 1000 {
		// Texts that differ from time to time; nothing refers to them outside of filters.
		k.table, k.filters, k.rooms = nil, nil, nil
	}
	if short := s.Slots() - len(k.filters); short > 0 {
		k.filters = append(k.filters, make([]kept, short)...)
		for i := range k.scored {
			k.scored[i] = append(k.scored[i], make(column, s.Slots()-len(k.scored[i]))...)
		}
	}
	return k
}

// forget drops the half that was used longest ago.
func (m *memos) forget() {
	var uses []uint64
	for _, k := range m.bySignature {
		uses = append(uses, k.used)
	}
	slices.Sort(uses)
	for key, k := range m.bySignature {
		if k.used <= uses[len(uses)/2] {
			delete(m.bySignature, key)
		}
	}
}
