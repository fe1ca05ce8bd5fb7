package controller

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// state is the state of a key in the queue.
type state struct {
	queued   bool // in the line
	working  bool
	begun    bool // of a key that is worked on: there is a worker
	again    bool // was added while it was being worked on (controller-L1)
	failures int
	due      time.Time // in the heap, if not zero
	since    time.Time // when it was put into the line, or the work began
	index    int       // in the heap
}

// queue holds keys in the order in which they became due.
type queue struct {
	mu     sync.Mutex
	keys   map[Key]*state // guarded by mu; keys of which anything is to be known
	line   []Key          // guarded by mu; due now
	later  timeline       // guarded by mu
	counts counts         // guarded by mu
	wake   run.Bell       // rung when next should look again
}

func newQueue() *queue {
	q := &queue{keys: map[Key]*state{}, wake: run.NewBell()}
	q.later.keys = q.keys
	return q
}

// add puts a key in the line, or in the heap if it is due later than now.
func (q *queue) add(key Key, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.put(key, q.state(key), due)
}

func (q *queue) state(key Key) *state {
	s := q.keys[key]
	if s == nil {
		s = &state{}
		q.keys[key] = s
	}
	return s
}

// put does the work of add. mu is held.
func (q *queue) put(key Key, s *state, due time.Time) {
	switch {
	case s.queued, s.again:
	case !due.IsZero():
		if s.due.IsZero() {
			s.due = due
			heap.Push(&q.later, key)
		} else if due.Before(s.due) {
			s.due = due
			heap.Fix(&q.later, s.index)
		} else {
			return
		}
		q.signal()
	case s.working:
		s.again = true
	default:
		s.queued, s.since = true, time.Now()
		q.counts.adds++
		q.line = append(q.line, key)
		q.signal()
	}
}

func (q *queue) signal() {
	q.wake.Ring()
}

// next blocks until a key is due, marks it as being worked on and returns it. It
// returns false when ctx is cancelled. It is for one caller at a time.
func (q *queue) next(ctx context.Context) (Key, bool) {
	for {
		key, wait, ok := q.take(time.Now())
		if ok {
			return key, ctx.Err() == nil
		}
		var timer *time.Timer
		var due <-chan time.Time
		if wait > 0 {
			timer = time.NewTimer(wait)
			due = timer.C
		}
		select {
		case <-q.wake:
		case <-due:
		case <-ctx.Done():
			ok = true
		}
		if timer != nil {
			timer.Stop()
		}
		if ok {
			return Key{}, false
		}
	}
}

// take returns the first key that is due, or how long it is until there is one (0:
// nothing is planned).
func (q *queue) take(now time.Time) (key Key, wait time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.later.Len() > 0 {
		first := q.later.order[0]
		s := q.keys[first]
		if wait = s.due.Sub(now); wait > 0 {
			break
		}
		wait = 0
		heap.Pop(&q.later)
		s.due = time.Time{}
		q.put(first, s, time.Time{})
	}
	if len(q.line) == 0 {
		return Key{}, wait, false
	}
	key = q.line[0]
	q.line = q.line[1:]
	s := q.keys[key]
	s.queued, s.working, s.begun = false, true, false
	if !s.due.IsZero() { // it is looked at now, and says afterwards when to look again
		heap.Remove(&q.later, s.index)
		s.due = time.Time{}
	}
	return key, 0, true
}

// begin says that a worker has begun to work on the key.
func (q *queue) begin(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, now := q.keys[key], time.Now()
	q.counts.waited.observe(now.Sub(s.since))
	s.begun, s.since = true, now
}

// done ends the work on a key, and queues it again after a time. It returns how
// often in a row it failed.
func (q *queue) done(key Key, after time.Duration, failed bool) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.keys[key]
	s.working = false
	q.counts.worked.observe(time.Since(s.since))
	if failed {
		q.counts.retries++
		s.failures++
	} else {
		s.failures = 0
	}
	if s.again {
		s.again = false
		q.put(key, s, time.Time{})
	}
	if after > 0 {
		q.put(key, s, time.Now().Add(after))
	}
	if !s.queued && s.due.IsZero() && s.failures == 0 {
		delete(q.keys, key)
	}
	return s.failures
}

// retry plans another try after failures and returns when.
func (q *queue) retry(key Key, failures int) time.Duration {
	pause := pauses.Pause(failures)
	q.add(key, time.Now().Add(pause))
	return pause
}

// timeline is a heap of keys by due time.
type timeline struct {
	keys  map[Key]*state
	order []Key
}

func (t *timeline) Len() int           { return len(t.order) }
func (t *timeline) Less(i, j int) bool { return t.keys[t.order[i]].due.Before(t.keys[t.order[j]].due) }

func (t *timeline) Swap(i, j int) {
	t.order[i], t.order[j] = t.order[j], t.order[i]
	t.keys[t.order[i]].index, t.keys[t.order[j]].index = i, j
}

func (t *timeline) Push(x any) {
	key := x.(Key) // only keys are pushed
	t.keys[key].index = len(t.order)
	t.order = append(t.order, key)
}

func (t *timeline) Pop() any {
	last := t.order[len(t.order)-1]
	t.order = t.order[:len(t.order)-1]
	return last
}
