package store

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// A watcher is a place in the history of one resource. Its fields are written by
// the watching goroutine under the read lock and by a publisher under the write
// lock of its Image, so never at the same time.
type watcher struct {
	q    Query
	r    *resource
	wait run.Bell // rung by a publisher who finds idle set; may hold a token from before

	told Revision // everything up to here was yielded
	next uint64   // number of the first event not yet looked at; meaningless while idle
	idle bool     // all events so far were looked at; the next that matches sets next and fills wait
	slot int      // place in the list of watchers that it stands in
}

// watchers finds the watchers that match an event without visiting the others.
type watchers struct {
	byPrefix map[string][]*watcher // without a term: by prefix or whole key
	byTerm   map[string][]*watcher
}

// list returns where w stands.
func (ws *watchers) list(w *watcher) (map[string][]*watcher, string) {
	if w.q.Term != "" {
		return ws.byTerm, w.q.Term
	}
	return ws.byPrefix, w.q.Prefix
}

func (ws *watchers) add(w *watcher) {
	if ws.byPrefix == nil {
		ws.byPrefix, ws.byTerm = map[string][]*watcher{}, map[string][]*watcher{}
	}
	m, k := ws.list(w)
	w.slot = len(m[k])
	m[k] = append(m[k], w)
}

func (ws *watchers) remove(w *watcher) {
	m, k := ws.list(w)
	l := m[k]
	last := len(l) - 1
	l[w.slot] = l[last]
	l[w.slot].slot = w.slot
	l[last] = nil
	if last == 0 {
		delete(m, k)
	} else {
		m[k] = l[:last]
	}
}

// wake wakes the idle watchers that match e, whose number is n. It looks up one key for each level
// of the key and one for each term, however many watchers there are.
func (ws *watchers) wake(e *event, n uint64) {
	if len(ws.byPrefix) > 0 {
		key := e.rec.Key
		for i := range len(key) {
			if key[i] == '/' {
				wakeAll(ws.byPrefix[key[:i+1]], e, n)
			}
		}
		wakeAll(ws.byPrefix[key], e, n)
	}
	if len(ws.byTerm) > 0 {
		for _, t := range e.rec.terms {
			wakeAll(ws.byTerm[t], e, n)
		}
		if e.prev != nil {
			for _, t := range e.prev.terms {
				wakeAll(ws.byTerm[t], e, n)
			}
		}
	}
}

func wakeAll(l []*watcher, e *event, n uint64) {
	for _, w := range l {
		if w.idle && w.q.covers(e.rec.Key) {
			w.idle, w.next = false, n
			w.wakeUp()
		}
	}
}

// wakeUp ends the waiting of w.
func (w *watcher) wakeUp() {
	w.wait.Ring()
}

const (
	// glance is the number of events that a watcher looks at while it holds off
	// the writers.
	glance = 256
	// handful is the number of events that it takes along at a time.
	handful = 64
)

// Watch yields the events after the given revision that match q (before or after the write: the
// caller sees records come into and go out of a term), waiting for more until ctx is cancelled or
// the caller leaves the loop. It starts no goroutine: a caller that stops reading blocks no other,
// falls behind, and past the history gets ErrExpired. An error is the last thing yielded; the end
// of ctx is context.Cause(ctx), that of the store ErrStopped.
//
// Between events it yields an Event with an empty Key whenever it is about to wait: its Revision says
// that everything up to there was yielded. Callers use it to flush buffers. With
// Query.Progress it does so as well when only revisions have moved, at most Options.Progress after
// a write; without writes nothing wakes it.
func (i *Image) Watch(ctx context.Context, q Query, after Revision) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w, err := i.subscribe(q, after)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer i.unsubscribe(w)
		var events []event
		for {
			if ctx.Err() != nil {
				yield(Event{}, context.Cause(ctx))
				return
			}
			var idle bool
			events, idle, err = i.nextEvents(w, events[:0])
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, e := range events {
				if !yield(e.public(), nil) {
					return
				}
			}
			clear(events) // let the yielded events be collected
			if !idle {
				continue
			}
			if !yield(Event{Record: Record{Revision: w.told}}, nil) {
				return
			}
			if err := i.idle(ctx, w); err != nil {
				yield(Event{}, err)
				return
			}
		}
	}
}

// idle waits for an event that matches, or for progress.
func (i *Image) idle(ctx context.Context, w *watcher) error {
	select {
	case <-w.wait:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-i.ended:
		// Events that were published before the stop are still yielded.
		select {
		case <-w.wait:
			return nil
		default:
			return ErrStopped
		}
	}
}

// progress wakes the watchers that report revisions without an event for them. One timer
// does so for all; a write sets it unless it is set already, so that nothing happens while nothing is
// written.
type progress struct {
	watchers map[*watcher]struct{} // with Query.Progress
	timer    *time.Timer           // nil before the first use
	set      bool
}

// setTimer makes the timer run if a watcher waits for it. The caller holds mu for writing.
func (i *Image) setTimer() {
	p := &i.progress
	if p.set || len(p.watchers) == 0 {
		return
	}
	p.set = true
	if p.timer == nil {
		p.timer = time.AfterFunc(i.opts.Progress, i.tellProgress)
		return
	}
	p.timer.Reset(i.opts.Progress)
}

// tellProgress wakes the idle watchers that have not yielded the newest revision.
func (i *Image) tellProgress() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.progress.set = false
	for w := range i.progress.watchers {
		if w.idle && w.told < i.last {
			w.wakeUp()
		}
	}
}

func (i *Image) subscribe(q Query, after Revision) (*watcher, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if after > i.last {
		return nil, fmt.Errorf("watch of %s after revision %d, newest is %d: %w", q.Prefix, after, i.last, ErrFuture)
	}
	r := i.resource(resourceOf(q.Prefix))
	if after < r.history.floor || i.taken.has(after) {
		return nil, fmt.Errorf("watch of %s after revision %d, history begins after %d: %w", q.Prefix, after, r.history.floor, ErrExpired)
	}
	w := &watcher{q: q, r: r, wait: run.NewBell(), told: after, next: r.history.after(after)}
	r.watchers.add(w)
	if q.Progress {
		if i.progress.watchers == nil {
			i.progress.watchers = map[*watcher]struct{}{}
		}
		i.progress.watchers[w] = struct{}{}
	}
	return w, nil
}

func (i *Image) unsubscribe(w *watcher) {
	i.mu.Lock()
	defer i.mu.Unlock()
	w.r.watchers.remove(w)
	delete(i.progress.watchers, w)
}

// nextEvents adds the next events for w to into. If there are none it makes w idle.
func (i *Image) nextEvents(w *watcher, into []event) (_ []event, idle bool, err error) {
	for {
		i.mu.RLock()
		h := &w.r.history
		switch {
		case w.idle:
		case w.next < h.first:
			floor := h.floor
			i.mu.RUnlock()
			return into, false, fmt.Errorf("watch of %s fell behind, history begins after revision %d: %w", w.q.Prefix, floor, ErrExpired)
		default:
			for end := min(w.next+glance, h.next); w.next < end && len(into) < handful; w.next++ {
				if e := h.at(w.next); w.q.matches(e) {
					into = append(into, *e)
				}
			}
			w.idle = len(into) == 0 && w.next == h.next
		}
		idle = w.idle
		switch {
		case idle:
			w.told = max(w.told, i.last)
		case len(into) > 0:
			w.told = into[len(into)-1].rec.Revision
		}
		i.mu.RUnlock()
		if idle || len(into) > 0 {
			return into, idle, nil
		}
	}
}

func (e *event) public() Event {
	out := Event{Record: e.rec.Record, Deleted: e.deleted}
	if e.prev != nil {
		out.Prev = e.prev.Record
	}
	return out
}

func (q Query) check() error {
	if q.Prefix == "" || strings.HasPrefix(q.Prefix, "/") {
		return fmt.Errorf("store: query prefix %q names no resource", q.Prefix)
	}
	return nil
}
