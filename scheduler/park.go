package scheduler

import (
	"container/heap"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// A group is parked items that are equal: a fact about one is true of all (plugin-P3). When something
// happens that can help, one of them tries, and if that went well the others follow, twice
// as many each time. So ten thousand equal pods that fit nowhere cost no more than one.
type group struct {
	key     groupKey
	waiting line
	out     int             // items that were released and have no result yet
	hints   [][]plugin.Hint // of each plug-in that refused
	all     bool            // helped by anything, for all that is known
}

// groupKey says which items are equal.
type groupKey struct {
	profile   *profile
	signature plugin.Signature
	refusers  string
	gated     bool      // kept out by PreEnqueue
	promised  types.UID // a pod with a nomination is like no other
}

// interest is a change that may help a group.
type interest struct {
	resource schema.GroupVersionResource
	action   plugin.Action // one
}

// park lets an item wait until something can help. Refusers are the names of the plug-ins that refused it.
func (q *queue) park(it *item, refusers []string, gated bool, promised types.UID) {
	q.take(it)
	key := groupKey{profile: it.profile, signature: it.signature, gated: gated, promised: promised}
	for _, name := range refusers {
		key.refusers += name + "\x00"
	}
	g := q.groups[key]
	if g == nil {
		g = &group{key: key, all: len(refusers) == 0}
		for _, name := range refusers {
			if hints, ok := it.profile.hints[name]; ok {
				g.hints = append(g.hints, hints)
			} else {
				g.all = true
			}
		}
		q.groups[key] = g
		q.subscribe(g)
	}
	if it.group == g {
		g.out-- // it tried for the others, too
		it.group = nil
	} else {
		q.resolve(it, 1)
	}
	it.group, it.at = g, parked
	heap.Push(&g.waiting, it)
}

// leave takes an item out of its group, of which it goes on being a scout.
func (q *queue) leave(it *item) {
	g := it.group
	heap.Remove(&g.waiting, it.index)
	g.out++
	it.at = inHand
}

// resolve notes that something else than the same refusal came of an item that its group waits for, and lets
// so many others try.
func (q *queue) resolve(it *item, others int) {
	g := it.group
	if g == nil {
		return
	}
	it.group = nil
	g.out--
	q.rouse(g, others)
	q.dissolve(g)
}

// dissolve forgets a group of which nothing is left.
func (q *queue) dissolve(g *group) {
	if len(g.waiting) > 0 || g.out > 0 {
		return
	}
	delete(q.groups, g.key)
	delete(q.any, g)
	q.eachInterest(g, func(i interest) {
		if delete(q.interest[i], g); len(q.interest[i]) == 0 {
			delete(q.interest, i)
		}
	})
}

// rouse lets up to n items of a group try.
func (q *queue) rouse(g *group, n int) {
	for ; n > 0 && len(g.waiting) > 0; n-- {
		q.again(g.waiting[0])
	}
}

func (q *queue) subscribe(g *group) {
	if g.all {
		q.any[g] = struct{}{}
		return
	}
	q.eachInterest(g, func(i interest) {
		if q.interest[i] == nil {
			q.interest[i] = map[*group]struct{}{}
		}
		q.interest[i][g] = struct{}{}
	})
}

func (q *queue) eachInterest(g *group, do func(interest)) {
	for _, hints := range g.hints {
		for _, hint := range hints {
			for a := hint.Action; a != 0; a &= a - 1 {
				do(interest{hint.Resource, a & -a})
			}
		}
	}
}

// happened lets those try that a change can help.
func (q *queue) happened(c plugin.Change) {
	if len(q.groups) == 0 {
		return
	}
	for g := range q.any {
		q.helped(g)
	}
	for a := c.Action; a != 0; a &= a - 1 {
		for g := range q.interest[interest{c.Resource, a & -a}] {
			if g.out == 0 && len(g.waiting) > 0 && g.helps(c) {
				q.helped(g)
			}
		}
	}
}

// helped lets one item of a group try, if none does already: that one will see what happened.
func (q *queue) helped(g *group) {
	if g.out == 0 && len(g.waiting) > 0 {
		q.count("event")
		q.rouse(g, 1)
	}
}

func (g *group) helps(c plugin.Change) bool {
	it := g.waiting[0]
	for _, hints := range g.hints {
		for i := range hints {
			hint := &hints[i]
			if hint.Resource == c.Resource && hint.Action&c.Action != 0 && (hint.Helps == nil || helps(hint, it.Pod, c)) {
				return true
			}
		}
	}
	return false
}
