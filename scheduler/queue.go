package scheduler

import (
	"container/heap"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// Where an item is.
type place int

const (
	inLine  place = iota // waits for its turn
	parked               // fits nowhere; waits for something that can help (S2)
	later                // something failed; waits for its time
	binding              // decided; the answer of the server is awaited
)

// An item is a pod that needs a node.
type item struct {
	pod      *plugin.Pod
	arrived  int64 // order among pods of one priority
	at       place
	index    int       // in the heap that at names
	due      time.Time // while later
	failures int       // errors in a row
	told     string    // the refusal that was told (S4)
	hopeless bool      // while parked: the end of other pods will not help
	changed  bool      // while binding: its pod changed
	decided  helps     // what had happened when it was decided about
}

// helps counts what can help pods that fit nowhere.
type helps struct {
	offers int // nodes came or changed
	ends   int // pods ended
}

// A queue holds the pods that need a node, each once. It has no lock of its own.
type queue struct {
	items    map[types.UID]*item
	line     line
	delayed  delayed
	parked   map[*item]struct{}
	helps    helps
	arrivals int64
}

func newQueue() *queue {
	return &queue{items: map[types.UID]*item{}, parked: map[*item]struct{}{}}
}

// add puts a pod in line that is not known yet.
func (q *queue) add(pod *plugin.Pod) {
	q.arrivals++
	it := &item{pod: pod, arrived: q.arrivals}
	q.items[pod.UID] = it
	heap.Push(&q.line, it)
}

// drop forgets a pod.
func (q *queue) drop(uid types.UID) {
	if it := q.items[uid]; it != nil {
		q.take(it)
		delete(q.items, uid)
	}
}

// take takes an item out of where it is.
func (q *queue) take(it *item) {
	switch it.at {
	case inLine:
		heap.Remove(&q.line, it.index)
	case later:
		heap.Remove(&q.delayed, it.index)
	case parked:
		delete(q.parked, it)
	case binding:
	}
	it.at = binding
}

// enqueue puts a known item in line.
func (q *queue) enqueue(it *item) {
	q.take(it)
	it.at = inLine
	heap.Push(&q.line, it)
}

// park lets an item that was decided about wait for something that can help, or
// puts it in line at once if that happened in the meantime.
func (q *queue) park(it *item, hopeless bool) {
	it.failures, it.hopeless = 0, hopeless
	if it.changed || it.decided.offers != q.helps.offers || !hopeless && it.decided.ends != q.helps.ends {
		q.enqueue(it)
		return
	}
	q.take(it)
	it.at = parked
	q.parked[it] = struct{}{}
}

// delay lets an item wait until due.
func (q *queue) delay(it *item, due time.Time) {
	q.take(it)
	it.at, it.due = later, due
	heap.Push(&q.delayed, it)
}

// next returns the item whose turn it is, in state binding, or nil and when the
// first of those that wait for their time is due; zero: never.
func (q *queue) next(now time.Time) (*item, time.Time) {
	for len(q.delayed) > 0 && !q.delayed[0].due.After(now) {
		q.enqueue(q.delayed[0])
	}
	if len(q.line) > 0 {
		it := q.line[0]
		q.take(it)
		it.changed, it.decided = false, q.helps
		return it, time.Time{}
	}
	if len(q.delayed) > 0 {
		return nil, q.delayed[0].due
	}
	return nil, time.Time{}
}

// podEnded puts in line what the end of a pod can help.
func (q *queue) podEnded() {
	q.helps.ends++
	for it := range q.parked {
		if !it.hopeless {
			q.enqueue(it)
		}
	}
}

// nodeOffered puts in line what a new or changed node can help: everything.
func (q *queue) nodeOffered() {
	q.helps.offers++
	for it := range q.parked {
		q.enqueue(it)
	}
}

// line is a heap: more important pods first, then those that came first.
type line []*item

func (l line) Len() int { return len(l) }
func (l line) Less(i, j int) bool {
	if a, b := priority(l[i].pod), priority(l[j].pod); a != b {
		return a > b
	}
	return l[i].arrived < l[j].arrived
}
func (l line) Swap(i, j int) { l[i], l[j] = l[j], l[i]; l[i].index, l[j].index = i, j }
func (l *line) Push(x any)   { it := x.(*item); it.index = len(*l); *l = append(*l, it) }
func (l *line) Pop() any     { return popItem((*[]*item)(l)) }

func priority(p *plugin.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// delayed is a heap by due time.
type delayed []*item

func (d delayed) Len() int           { return len(d) }
func (d delayed) Less(i, j int) bool { return d[i].due.Before(d[j].due) }
func (d delayed) Swap(i, j int)      { d[i], d[j] = d[j], d[i]; d[i].index, d[j].index = i, j }
func (d *delayed) Push(x any)        { it := x.(*item); it.index = len(*d); *d = append(*d, it) }
func (d *delayed) Pop() any          { return popItem((*[]*item)(d)) }

func popItem(h *[]*item) *item {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return it
}
