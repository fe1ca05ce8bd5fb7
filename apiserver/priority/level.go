package priority

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A level has the seats and queues of a priority level.
type level struct {
	name   string
	header []string // its UID
	exempt bool

	mu    sync.Mutex
	plan  plan // guarded by mu, as all that follows
	least int  // seats that are never lent
	most  int  // seats, borrowed ones included
	fair  int  // nominal seats
	wide  int  // seats that one request can take
	limit int  // seats that the level has now

	seats   int // in use
	waiting int // requests
	wanted  int // seats of the requests that wait
	peak    int // the most seats that were in use and wanted at one time, since the last division

	pages  [][]queue // the queues; a page is nil until one of its queues is used
	active []*queue  // queues in which requests wait
	served int64     // of the queue that got a seat last, see queue
}

// pageSize is how many queues are made at a time. A level may be configured to have ten million.
const pageSize = 64

// A queue has the requests of the flows that use it.
type queue struct {
	head, tail *waiter
	length     int
	seats      int   // in use, of requests that were in the queue or would have been
	served     int64 // nanoseconds in which it had a seat; of one that was not used for a while, those of the others
}

// A waiter is a request that waits for seats.
type waiter struct {
	next, prev *waiter
	queue      *queue
	schema     *schema
	seats      int
	since      time.Time
	flow       uint64
	granted    chan struct{} // closed when it has them
	seated     bool          // guarded by the level's mu
}

// A Ticket stands for the seats of a request that is executed. The zero Ticket has none.
type Ticket struct {
	dispatcher *Dispatcher
	schema     *schema
	queue      *queue
	seats      int
	since      time.Duration // after the dispatcher was made
	waited     time.Duration
}

// Waited returns how long the request waited for its seats.
func (t *Ticket) Waited() time.Duration { return t.waited }

// wanted reports whether the request has seats for which others of its level wait.
func (t *Ticket) wanted() bool {
	l := t.schema.level
	if l.exempt {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting > 0
}

// configure makes the level follow a plan. It returns how many nominal seats it has.
func (l *level) configure(p plan, seats, shares int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.fair == 0 && l.most == 0
	before := l.fair
	l.plan = p
	l.fair, l.least, l.most = p.seats(seats, shares)
	l.wide = p.width(l.fair)
	if first || before != l.fair {
		l.limit = l.fair // until the next division
	}
	l.limit = min(max(l.limit, l.least), l.most)
	if p.queues == 0 {
		l.pages = nil // what waits is in the active queues
	} else if n := (p.queues + pageSize - 1) / pageSize; n != len(l.pages) {
		pages := make([][]queue, n)
		copy(pages, l.pages)
		l.pages = pages
	}
	l.grant()
	return l.fair
}

// queueAt returns the i-th queue. The caller holds mu.
func (l *level) queueAt(i int) *queue {
	page := &l.pages[i/pageSize]
	if *page == nil {
		*page = make([]queue, pageSize)
	}
	return &(*page)[i%pageSize]
}

// shortest returns the queue of a flow's hand in which the fewest requests wait; of equal ones that which has the
// fewest seats. The caller holds mu.
func (l *level) shortest(flow uint64) *queue {
	var cards [mostHand]int
	var best *queue
	for _, i := range deal(flow, l.plan.queues, cards[:l.plan.hand]) {
		if q := l.queueAt(i); best == nil || q.length < best.length || q.length == best.length && q.seats < best.seats {
			best = q
		}
	}
	return best
}

// fits reports whether a request may take that many seats. A request that is wider than all seats of its level is
// executed alone. The caller holds mu.
func (l *level) fits(seats int) bool {
	return l.seats+seats <= l.limit || l.seats == 0 && l.limit > 0
}

// take counts n seats of a queue, which may be nil. The caller holds mu.
func (l *level) take(q *queue, n int) {
	l.seats += n
	if q != nil {
		q.seats += n
	}
	l.peak = max(l.peak, l.seats+l.wanted)
}

// enter gives the request seats at once, or a place in a queue (w is not nil then), or a reason for which it is
// refused.
func (l *level) enter(s *schema, flow uint64, seats int) (t Ticket, w *waiter, refused reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seats = min(seats, l.wide)
	var q *queue
	if l.waiting == 0 && l.fits(seats) {
		if l.plan.queues > 0 {
			q = l.queueAt(int(flow % uint64(l.plan.queues))) // the first of its hand: all are empty
		}
		l.take(q, seats)
		return Ticket{schema: s, queue: q, seats: seats}, nil, none
	}
	l.peak = max(l.peak, l.seats+l.wanted+seats)
	if l.plan.queues == 0 {
		return t, nil, overLimit
	}
	if q = l.shortest(flow); q.length >= l.plan.length {
		return t, nil, queueFull
	}
	w = &waiter{queue: q, schema: s, seats: seats, since: time.Now(), flow: flow, granted: make(chan struct{})}
	if w.prev = q.tail; w.prev == nil {
		q.head = w
		q.served = max(q.served, l.served)
		l.active = append(l.active, q)
	} else {
		w.prev.next = w
	}
	q.tail = w
	q.length++
	l.waiting++
	l.wanted += seats
	l.grant() // another queue may have requests that don't fit, or this one's is the next
	return t, w, none
}

// remove takes a request out of its queue. The caller holds mu.
func (l *level) remove(w *waiter) {
	q := w.queue
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.tail = w.prev
	}
	w.next, w.prev = nil, nil
	q.length--
	l.waiting--
	l.wanted -= w.seats
	if q.length == 0 {
		if i := slices.Index(l.active, q); i >= 0 {
			last := len(l.active) - 1
			l.active[i] = l.active[last]
			l.active[last] = nil
			l.active = l.active[:last]
		}
	}
}

// grant gives free seats to waiting requests. If the one whose turn it is doesn't fit, none is executed, so that
// wide requests are not passed for ever. The caller holds mu.
func (l *level) grant() {
	for len(l.active) > 0 {
		best := l.active[0]
		for _, q := range l.active[1:] {
			if q.seats < best.seats || q.seats == best.seats && q.served < best.served {
				best = q
			}
		}
		w := best.head
		if !l.fits(w.seats) {
			return
		}
		l.remove(w)
		l.served = max(l.served, best.served)
		l.take(best, w.seats)
		w.seated = true
		close(w.granted)
	}
}

// leave gives seats back that a request had for some time.
func (l *level) leave(q *queue, seats int, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seats -= seats
	if q != nil {
		q.seats -= seats
		q.served += int64(seats) * int64(took)
	}
	if l.waiting > 0 {
		l.grant()
	}
}

// wait waits until the request has its seats, ctx is over, or the patience is.
func (l *level) wait(ctx context.Context, w *waiter, patience time.Duration) (reason, error) {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-w.granted:
		return none, nil
	case <-timeout.C:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case w.seated && ctx.Err() == nil:
		return none, nil
	case w.seated: // it got its seats at the same moment
		l.seats -= w.seats
		w.queue.seats -= w.seats
		l.grant()
	default:
		l.remove(w)
		l.grant() // the next may be one that fits
	}
	if ctx.Err() != nil {
		return cancelled, context.Cause(ctx)
	}
	return timedOut, nil
}

// need returns the seats that the level needs, and begins to measure them again.
func (l *level) need() need {
	l.mu.Lock()
	defer l.mu.Unlock()
	peak := l.peak
	l.peak = l.seats + l.wanted
	// A level keeps the nominal seats that it uses.
	least := max(l.least, min(l.fair, peak))
	return need{least: least, most: max(l.most, least), wanted: max(peak, least)}
}

// set gives the level that many seats.
func (l *level) set(limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = limit
	l.grant()
}
