package blocking

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

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
	ended chan struct{} // closed when answer and err are set

	mu       sync.Mutex
	seen     bool            // guarded by mu; the state was read
	at       store.Revision  // guarded by mu; of the newest state that was judged
	observed store.Revision  // guarded by mu; of the newest event that was judged
	held     map[string]held // guarded by mu; the objects asked about, by key
	counts   []int           // guarded by mu; of objects for which each outcome is true
	last     store.Value     // guarded by mu; the object that was read last; nil if there was none
	fault    error           // guarded by mu; why an expression could not be answered
	over     bool            // guarded by mu; ended is closed
	answer   Answer          // written before ended is closed
	err      error           // written before ended is closed
}

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

// lastLook answers when the time is over (U4).
func (w *waiter) lastLook() (Answer, error) {
	if err := w.reread(); err != nil {
		return Answer{}, err
	}
	if w.isEnded() {
		return w.verdict()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return Answer{}, &TimeoutError{Unmet: w.unmet()}
}

// reread judges the newest state, whatever was judged before.
func (w *waiter) reread() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return nil
	}
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
			if w.matches(rec.Value) {
				w.put(rec.Key, rec.Value, rec.Revision)
			}
		}
	}
	w.seen = true
	w.decide()
	return nil
}

func (w *waiter) matches(v store.Value) bool { return w.request.Matches == nil || w.request.Matches(v) }

// observe judges a change.
func (w *waiter) observe(ev *store.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || !w.seen || ev.Revision <= max(w.since, w.observed, w.held[ev.Key].revision) {
		return
	}
	w.observed = ev.Revision
	if ev.Revision <= w.at && w.request.Key == "" {
		return // the list that was read has it
	}
	w.at = max(w.at, ev.Revision)
	w.drop(ev.Key)
	if !ev.Deleted && (w.request.Key != "" || w.matches(ev.Value)) {
		w.put(ev.Key, ev.Value, ev.Revision)
	}
	w.decide()
}

// put takes an object in, with what is true of it. The caller holds mu.
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

// drop takes an object out. The caller holds mu.
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

// decide ends the wait if an outcome is true. The caller holds mu.
func (w *waiter) decide() {
	n := len(w.held)
	for i, o := range w.request.Outcomes {
		if w.counts[i] > 0 && (o.Any || w.counts[i] == n) {
			w.endLocked(w.state(o.Name), nil)
			return
		}
	}
	switch {
	case w.fault != nil:
		w.endLocked(Answer{}, w.fault)
	case n > 0:
	case w.request.Missing == Ended:
		w.endLocked(w.state(Absent), nil)
	case w.request.Missing == Fail:
		w.endLocked(Answer{}, &MissingError{Deleted: w.last != nil, Last: w.last})
	}
}

// state returns what is held as an answer. The caller holds mu.
func (w *waiter) state(outcome string) Answer {
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

// unmet says what each outcome lacks. The caller holds mu.
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
