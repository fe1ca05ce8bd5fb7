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
	inHand  place = iota // is decided about, or was: the answer of the server is awaited
	active               // waits for its turn
	backoff              // something happened that can help, but it was tried a moment ago
	later                // something failed; waits for its time
	parked               // fits nowhere, or must not be tried; waits for something that can help (S2)
)

// An item is a pod that needs a node.
type item struct {
	plugin.Queued
	profile   *profile
	signature plugin.Signature
	arrived   int64 // order among pods that are equal to QueueSort
	at        place
	index     int // in the heap that at names
	due       time.Time
	failures  int    // errors in a row
	told      string // the refusal that was told (S4)
	changed   bool   // while in hand: the pod is another than was decided about
	group     *group // where it is parked, or was until something happened that may help
	tried     time.Time
	opinions  *opinions // of extenders, for the next decision

	unadmitted bool // PreEnqueue is to be asked before it is decided about
	unsigned   bool // it is like no other, since Sign has failed
}

// A queue holds the pods that need a node, each once. It belongs to the keeper.
type queue struct {
	now      func() time.Time
	first    time.Duration // of backing off after a refusal
	most     time.Duration
	items    map[types.UID]*item
	active   line
	backoff  windowed
	later    delayed
	groups   map[groupKey]*group
	interest map[interest]map[*group]struct{}
	any      map[*group]struct{} // interested in everything
	arrivals int64
	count    func(event string) // of metrics
}

func newQueue(now func() time.Time, first, most time.Duration) *queue {
	return &queue{
		now: now, first: first, most: most, count: func(string) {},
		items: map[types.UID]*item{}, groups: map[groupKey]*group{},
		interest: map[interest]map[*group]struct{}{}, any: map[*group]struct{}{},
	}
}

// add makes an item of a pod that is not known yet. It has to be put somewhere.
func (q *queue) add(pod *plugin.Pod, p *profile) *item {
	q.arrivals++
	it := &item{Queued: plugin.Queued{Pod: pod, Since: q.now()}, profile: p, arrived: q.arrivals}
	q.items[pod.UID] = it
	return it
}

// drop forgets a pod.
func (q *queue) drop(uid types.UID) {
	if it := q.items[uid]; it != nil {
		others := 1 // may try in its place, if it was to
		if it.at == parked {
			others = 0
		}
		q.take(it)
		delete(q.items, uid)
		q.resolve(it, others)
	}
}

// take takes an item out of where it is.
func (q *queue) take(it *item) {
	switch it.at {
	case active:
		heap.Remove(&q.active, it.index)
	case backoff:
		heap.Remove(&q.backoff, it.index)
	case later:
		heap.Remove(&q.later, it.index)
	case parked:
		q.leave(it)
	case inHand:
	}
	it.at = inHand
}

// enqueue lets an item have its turn as soon as possible.
func (q *queue) enqueue(it *item) {
	q.take(it)
	it.at = active
	heap.Push(&q.active, it)
}

// again lets an item that may fit now have its turn, but not before its time unless nobody else waits.
func (q *queue) again(it *item) {
	due := it.tried.Add(q.pause(it.Attempts))
	if it.Attempts == 0 || !due.After(q.now()) {
		q.enqueue(it)
		return
	}
	q.take(it)
	it.at, it.due = backoff, due
	heap.Push(&q.backoff, it)
}

// pause is how long an item waits after so many attempts: the first time, then twice as long each time.
func (q *queue) pause(attempts int) time.Duration {
	return min(q.most, q.first<<min(max(0, attempts-1), 10))
}

// delay lets an item wait until due.
func (q *queue) delay(it *item, due time.Time) {
	q.take(it)
	it.at, it.due = later, due
	heap.Push(&q.later, it)
	q.resolve(it, 1)
}

// next returns the item whose turn it is, in hand, or nil and when the first of those that wait for
// their time is due; zero: never.
func (q *queue) next() (*item, time.Time) {
	now := q.now()
	for len(q.later) > 0 && !q.later[0].due.After(now) {
		q.enqueue(q.later[0])
	}
	for len(q.backoff) > 0 && !q.backoff[0].due.After(now) {
		q.enqueue(q.backoff[0])
	}
	var it *item
	switch {
	case len(q.active) > 0:
		it = q.active[0]
	case len(q.backoff) > 0:
		it = q.backoff[0] // there is nothing better to do
	case len(q.later) > 0:
		return nil, q.later[0].due
	default:
		return nil, time.Time{}
	}
	q.take(it)
	it.changed, it.tried = false, now
	it.Attempts++
	return it, time.Time{}
}

// line is a heap in the order of QueueSort, and then of arrival.
type line []*item

func (l line) Len() int           { return len(l) }
func (l line) Less(i, j int) bool { return before(l[i], l[j]) }
func (l line) Swap(i, j int)      { l[i], l[j] = l[j], l[i]; l[i].index, l[j].index = i, j }
func (l *line) Push(x any)        { it := x.(*item); it.index = len(*l); *l = append(*l, it) }
func (l *line) Pop() any          { return popItem((*[]*item)(l)) }

func before(a, b *item) bool {
	if a.profile.sort != nil {
		if order := a.profile.compare(a, b); order != 0 {
			return order < 0
		}
	}
	return a.arrived < b.arrived
}

// delayed is a heap by due time.
type delayed []*item

func (d delayed) Len() int           { return len(d) }
func (d delayed) Less(i, j int) bool { return d[i].due.Before(d[j].due) }
func (d delayed) Swap(i, j int)      { d[i], d[j] = d[j], d[i]; d[i].index, d[j].index = i, j }
func (d *delayed) Push(x any)        { it := x.(*item); it.index = len(*d); *d = append(*d, it) }
func (d *delayed) Pop() any          { return popItem((*[]*item)(d)) }

// windowed is a heap by the second in which items are due, and within it in the order of the line: what
// happens to several at once does not let the less important go first.
type windowed []*item

const window = time.Second // upstream's

func (w windowed) Len() int { return len(w) }
func (w windowed) Less(i, j int) bool {
	if a, b := w[i].due.Truncate(window), w[j].due.Truncate(window); !a.Equal(b) {
		return a.Before(b)
	}
	return before(w[i], w[j])
}
func (w windowed) Swap(i, j int) { w[i], w[j] = w[j], w[i]; w[i].index, w[j].index = i, j }
func (w *windowed) Push(x any)   { it := x.(*item); it.index = len(*w); *w = append(*w, it) }
func (w *windowed) Pop() any     { return popItem((*[]*item)(w)) }

func popItem(h *[]*item) *item {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return it
}
