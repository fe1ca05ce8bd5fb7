package blocking

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// A waiter is one waiting blocking read.
type waiter struct {
	waiters  *Waiters
	request  Request
	scope    *scope
	programs []*program
	since    store.Revision // changes up to here were made before the question was asked

	lead  chan struct{} // filled when it is to read the watch
	look  run.Bell      // rung when it is to read the state again
	ended chan struct{} // closed when answer and err are set

	mu      sync.Mutex
	looking bool          // guarded by mu; the goroutine of the request owns state, and changes wait in pending
	pending []store.Event // guarded by mu; at most mostPending
	behind  bool          // guarded by mu; there were more
	over    bool          // guarded by mu; ended is closed, or the request has left
	answer  Answer        // written before ended is closed
	err     error         // written before ended is closed

	state // of the goroutine of the request while looking is true, otherwise guarded by mu
}

// A state is the judgements of a request so far.
type state struct {
	seen     bool            // the state was read
	at       store.Revision  // of the newest state that was judged
	observed store.Revision  // of the newest event that was judged
	held     map[string]held // the objects asked about, by key
	counts   []int           // of objects for which each outcome is true
	last     store.Value     // the object that was read last; nil if there was none
	fault    error           // why an expression could not be answered
}

// mostPending is how many changes wait while the state is read. If there are more it is read again.
const mostPending = 1000

// A held object, and which outcomes are true of it.
type held struct {
	value    store.Value
	revision store.Revision
	holds    [maxOutcomes]bool
}

func (w *waiter) isEnded() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// verdict returns how the wait ended.
func (w *waiter) verdict() (Answer, error) { return w.answer, w.err }

// end ends the wait, unless it has ended.
func (w *waiter) end(a Answer, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked(a, err)
}

func (w *waiter) endLocked(a Answer, err error) {
	if !w.over {
		w.over, w.answer, w.err = true, a, err
		close(w.ended)
	}
}

// abandon makes others do nothing more for the request, which ends.
func (w *waiter) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

// cut returns the error of a look that was cut short: that of the request ctx, or that its time is over.
func (w *waiter) cut(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		late := &TimeoutError{}
		for _, o := range w.request.Outcomes {
			late.Unmet = append(late.Unmet, Unmet{Outcome: o, Detail: "there was no time to evaluate it for each object: " + o.Text})
		}
		return late
	}
	return err
}

// lastLook answers when the time is over (U4).
func (w *waiter) lastLook(ctx context.Context) (Answer, error) {
	if err := w.reread(ctx); err != nil {
		return Answer{}, err
	}
	if w.isEnded() {
		return w.verdict()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return Answer{}, &TimeoutError{Unmet: w.unmet()}
}

// askToReread makes the goroutine of the request read the state again. Changes wait for that.
func (w *waiter) askToReread() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looking = true
	w.look.Ring()
}

// reread judges the newest state, whatever was judged before, in a seat, and then the changes that came meanwhile. It runs on
// the goroutine of the request. When ctx is over it returns the cause.
func (w *waiter) reread(ctx context.Context) error {
	w.mu.Lock()
	if w.over {
		w.mu.Unlock()
		return nil
	}
	w.looking = true
	w.mu.Unlock()
	seat, err := w.request.enter(ctx)
	if err != nil {
		return err
	}
	defer seat.Leave()
	if err := w.read(ctx, seat); err != nil {
		return err
	}
	for {
		changes, again := w.takePending()
		switch {
		case again:
			if err := w.read(ctx, seat); err != nil {
				return err
			}
			continue
		case len(changes) == 0:
			return nil
		}
		for i := range changes {
			if w.isEnded() {
				return nil
			}
			if a, err, ended := w.judge(&changes[i]); ended {
				w.end(a, err)
			}
			if err := seat.Yield(ctx); err != nil {
				return err
			}
		}
	}
}

// takePending returns the changes that came while the state was read, or that it has to be read again. If there are none,
// changes are judged by the leader again.
func (w *waiter) takePending() (changes []store.Event, again bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changes, again = w.pending, w.behind
	w.pending, w.behind = nil, false
	select {
	case <-w.look:
		again = true
	default:
	}
	if len(changes) == 0 && !again {
		w.looking = false
	}
	return changes, again
}

// read judges the newest state. The caller owns the state.
func (w *waiter) read(ctx context.Context, seat Seat) error {
	w.held, w.counts, w.fault = map[string]held{}, make([]int, len(w.programs)), nil
	if key := w.request.Key; key != "" {
		// The revision comes first: a change in between is judged twice, and not missed.
		w.at = max(w.at, w.waiters.opts.Store.Revision())
		rec, err := w.waiters.opts.Store.Get(key)
		switch {
		case err == nil:
			w.put(rec.Key, rec.Value, rec.Revision)
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
	} else {
		state, err := w.waiters.opts.Store.List(w.request.Query, store.Page{})
		if err != nil {
			return err
		}
		w.at = max(w.at, state.Revision)
		for _, rec := range state.Records {
			if err := seat.Yield(ctx); err != nil {
				return err
			}
			if w.matches(rec.Value) {
				w.put(rec.Key, rec.Value, rec.Revision)
			}
		}
	}
	w.seen = true
	if a, err, ended := w.decide(); ended {
		w.end(a, err)
	}
	return nil
}

func (w *waiter) matches(v store.Value) bool { return w.request.Matches == nil || w.request.Matches(v) }

// observe judges a change, or leaves it to the goroutine of the request if that reads the state.
func (w *waiter) observe(ev *store.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.over:
	case w.looking && len(w.pending) >= mostPending:
		w.pending, w.behind = nil, true
	case w.looking && !w.behind:
		w.pending = append(w.pending, *ev)
	case w.looking:
	default:
		if a, err, ended := w.judge(ev); ended {
			w.endLocked(a, err)
		}
	}
}

// judge judges a change, and returns how the wait ends by it. The caller owns the state.
func (w *waiter) judge(ev *store.Event) (a Answer, err error, ended bool) { //nolint:revive,staticcheck // the error is a part of the result
	if !w.seen || ev.Revision <= max(w.since, w.observed, w.held[ev.Key].revision) {
		return Answer{}, nil, false
	}
	w.observed = ev.Revision
	if ev.Revision <= w.at && w.request.Key == "" {
		return Answer{}, nil, false // the list that was read has it
	}
	w.at = max(w.at, ev.Revision)
	w.drop(ev.Key)
	if !ev.Deleted && (w.request.Key != "" || w.matches(ev.Value)) {
		w.put(ev.Key, ev.Value, ev.Revision)
	}
	return w.decide()
}

// put takes an object in, with what is true of it. The caller owns the state.
func (w *waiter) put(key string, v store.Value, revision store.Revision) {
	h := held{value: v, revision: revision}
	for i, p := range w.programs {
		ok, err := w.scope.memo.judge(w.waiters, key, v, p)
		if err != nil && w.fault == nil {
			w.fault = err
		}
		if h.holds[i] = ok; ok {
			w.counts[i]++
			if w.request.Key != "" {
				break // the first outcome is the answer
			}
		}
	}
	w.held[key], w.last = h, v
}

// drop takes an object out. The caller owns the state.
func (w *waiter) drop(key string) {
	h, ok := w.held[key]
	if !ok {
		return
	}
	delete(w.held, key)
	for i := range w.programs {
		if h.holds[i] {
			w.counts[i]--
		}
	}
}

// decide returns how the wait ends if an outcome is true, or none can be. The caller owns the state.
func (w *waiter) decide() (a Answer, err error, ended bool) { //nolint:revive,staticcheck // as judge
	n := len(w.held)
	for i, o := range w.request.Outcomes {
		if w.counts[i] > 0 && (o.Any || w.counts[i] == n) {
			return w.result(o.Name), nil, true
		}
	}
	switch {
	case w.fault != nil:
		return Answer{}, w.fault, true
	case n > 0:
	case w.request.Missing == Ended:
		return w.result(Absent), nil, true
	case w.request.Missing == Fail:
		return Answer{}, &MissingError{Deleted: w.last != nil, Last: w.last}, true
	}
	return Answer{}, nil, false
}

// result returns the held objects as an answer. The caller owns the state.
func (w *waiter) result(outcome string) Answer {
	a := Answer{Outcome: outcome, Revision: w.at}
	if w.request.Key != "" {
		a.Value, a.Last = w.held[w.request.Key].value, w.last
		return a
	}
	a.Values = []store.Value{}
	for _, key := range slices.Sorted(maps.Keys(w.held)) {
		a.Values = append(a.Values, w.held[key].value)
	}
	return a
}

// named is how many objects a TimeoutError names for each outcome.
const named = 5

// unmet returns each outcome's missing part. The caller holds mu.
func (w *waiter) unmet() []Unmet {
	outcomes := w.request.Outcomes
	if w.request.Missing == Ended {
		outcomes = append(slices.Clone(outcomes), Outcome{Name: Absent})
	}
	var out []Unmet
	for i, o := range outcomes {
		u := Unmet{Outcome: o}
		switch {
		case o.Text == "" && w.request.Key != "":
			u.Detail = "the object exists"
		case o.Text == "":
			u.Detail = fmt.Sprintf("there are %d objects", len(w.held))
		case len(w.held) == 0 && w.request.Key != "":
			u.Detail = "there is no such object"
		case len(w.held) == 0:
			u.Detail = "there is no such object in the collection"
		case w.request.Key != "":
			u.Detail = "does not hold: " + o.Text
		default:
			u.Detail = fmt.Sprintf("holds for %d of %d objects: %s", w.counts[i], len(w.held), o.Text)
			if !o.Any {
				u.Detail += "; not for " + w.missing(i)
			}
		}
		out = append(out, u)
	}
	return out
}

// missing names objects for which an outcome is not true. The caller holds mu.
func (w *waiter) missing(outcome int) string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(w.held)) {
		if !w.held[key].holds[outcome] {
			names = append(names, strings.TrimPrefix(key, w.request.Scope))
		}
	}
	if more := len(names) - named; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:named], ", "), more)
	}
	return strings.Join(names, ", ")
}
