package blocking

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sampan-io/sampan/internal/expression"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// A Store is the part of package store that Waiters use.
type Store interface {
	Revision() store.Revision
	Get(key string) (store.Record, error)
	List(q store.Query, p store.Page) (store.Listing, error)
	Watch(ctx context.Context, q store.Query, after store.Revision) iter.Seq2[store.Event, error]
}

// Options configures a [Waiters]. Store and Object are required.
type Options struct {
	Store Store

	// Object returns an expression's view of a value. It is pure.
	Object func(store.Value) (map[string]any, error)

	// PerUser is the largest number of blocking reads of one user at a time; 0 means 10,000.
	PerUser int
	// Total is the largest number of all users; 0 means twice PerUser.
	Total int
}

// A Request is a blocking read of an object or a collection in the store.
type Request struct {
	Question

	User      string
	Unbounded bool // PerUser and Total do not bound it, and it does not count

	// Enter takes a seat in which expressions are evaluated; nil means that none is needed. The requests of one user take one
	// seat at a time for a change. Its error is the cause of the context, or a refusal.
	Enter func(ctx context.Context) (Seat, error)

	Scope string // the prefix of all keys of the kind in the namespace, or in all of them

	Key string // of the one object; empty for a collection

	// Of a collection: which objects are asked about. Query is that of a list; Matches
	// looks at what Query may find too much. nil matches everything.
	Query   store.Query
	Matches func(store.Value) bool
}

// A Seat is the right to use a processor for evaluations.
type Seat interface {
	// Yield is called between two evaluations. It lets others evaluate, and returns the cause of ctx when that is over.
	Yield(ctx context.Context) error
	Leave()
}

// A freeSeat is one of a request that needs none.
type freeSeat struct{}

func (freeSeat) Yield(ctx context.Context) error { return context.Cause(ctx) }
func (freeSeat) Leave()                          {}

func (r *Request) enter(ctx context.Context) (Seat, error) {
	if r.Enter == nil {
		return freeSeat{}, nil
	}
	return r.Enter(ctx)
}

// LookTime is how long a request may evaluate beyond its time limit: a question with a limit of zero is judged once, and every
// other once more at the end (U4).
const LookTime = 5 * time.Second

// enterPause is after what time a leader whose seat was refused asks for one again.
const enterPause = 250 * time.Millisecond

// An Answer is a state in which one of the outcomes is true.
type Answer struct {
	Outcome  string
	Value    store.Value   // of the one object; nil if it is absent
	Last     store.Value   // of the one object, as it was seen last; nil if it never was
	Values   []store.Value // of the collection, in the order of their keys
	Revision store.Revision
}

// A TimeoutError says that the time was over first.
type TimeoutError struct{ Unmet []Unmet }

// Lacks returns each outcome's missing part, without saying that time is over.
func (e *TimeoutError) Lacks() string {
	lacks := make([]string, len(e.Unmet))
	for i, u := range e.Unmet {
		lacks[i] = u.Outcome.Name + ": " + u.Detail
	}
	return strings.Join(lacks, "; ")
}

// An Unmet is an outcome that was not true at the timeout, and why.
type Unmet struct {
	Outcome Outcome
	Detail  string
}

func (e *TimeoutError) Error() string {
	return "timed out: " + e.Lacks()
}

// A MissingError says that the object does not exist, where that is a failure.
type MissingError struct {
	Deleted bool        // it did when the question was asked
	Last    store.Value // the deleted object, as it was seen last; nil if it was none
}

func (e *MissingError) Error() string {
	if e.Deleted {
		return "the object was deleted during the wait"
	}
	return "there is no such object"
}

// A BusyError says that there are too many blocking reads.
type BusyError struct {
	Limit int
	Total bool // the limit is that of all users together
}

func (e *BusyError) Error() string {
	if e.Total {
		return fmt.Sprintf("too many blocking reads: the limit is %d", e.Limit)
	}
	return fmt.Sprintf("too many blocking reads of this user: the limit is %d", e.Limit)
}

// Waiters answers blocking reads. It is safe for concurrent use.
//
// The waiting requests of one scope share a watch. One of them, the leader, reads it on its own
// goroutine and judges each event for all of the scope (see follow). When the leader has its answer
// it appoints another request of the scope, which goes on after the last event that all have
// judged.
type Waiters struct {
	opts        Options
	evaluations atomic.Int64

	mu       sync.Mutex
	scopes   map[scopeKey]*scope // guarded by mu
	programs map[string]*program // guarded by mu; by text
	perUser  map[string]int      // guarded by mu
	total    int                 // guarded by mu
}

// A program is an expression of a waiting request, compiled once.
type program struct {
	*expression.Expression
	users int // guarded by mu of Waiters
}

// A scopeKey names a scope: the requests of a user about one kind in one namespace, or in all.
type scopeKey struct{ user, prefix string }

// A scope is what shares a watch. Users do not share one: the leader judges changes for all in the seats of its user.
type scope struct {
	key  scopeKey
	memo memo

	// All fields below are guarded by mu of Waiters.
	all    map[*waiter]struct{}
	byKey  map[string]map[*waiter]struct{} // the requests about one object
	wide   map[*waiter]struct{}            // the requests about a collection
	leader *waiter                         // the request that reads the watch, or was appointed to
	after  store.Revision                  // everything up to here was judged
}

// New returns Waiters without waiting requests.
func New(opts Options) *Waiters {
	if opts.PerUser == 0 {
		opts.PerUser = 10_000
	}
	if opts.Total == 0 {
		opts.Total = 2 * opts.PerUser
	}
	return &Waiters{opts: opts, scopes: map[scopeKey]*scope{}, programs: map[string]*program{}, perUser: map[string]int{}}
}

// Evaluations returns how many expressions were evaluated so far.
func (ws *Waiters) Evaluations() int64 { return ws.evaluations.Load() }

// Waiting returns the number of blocking reads that wait.
func (ws *Waiters) Waiting() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.total
}

// Wait blocks until an outcome of the question is true, and returns the state in which
// it is. Otherwise its error is an [*InvalidError], a [*TimeoutError], a [*MissingError], a [*BusyError], an
// [*expression.EvalError] if an expression cannot be answered for an object, an error of
// the store, or, when ctx is over, context.Cause(ctx).
func (ws *Waiters) Wait(ctx context.Context, r Request) (Answer, error) {
	w := &waiter{waiters: ws, request: r, ended: make(chan struct{}), lead: make(chan struct{}, 1), look: run.NewBell()}
	if err := ws.join(w); err != nil {
		return Answer{}, err
	}
	defer ws.leave(w)
	defer w.abandon()
	looks, cancel := context.WithTimeout(ctx, r.Timeout+LookTime)
	defer cancel()
	timed, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	if err := w.reread(looks); err != nil {
		return Answer{}, w.cut(ctx, err)
	}
	for {
		select {
		case <-w.ended: // first: an answer counts even if the time has passed as well
			return w.verdict()
		default:
		}
		select {
		case <-w.ended:
		case <-w.look:
			if err := w.reread(looks); err != nil {
				return Answer{}, w.cut(ctx, err)
			}
		case <-w.lead:
			if err := ws.follow(timed, looks, w); err != nil {
				return Answer{}, w.cut(ctx, err)
			}
		case <-timed.Done():
			if ctx.Err() != nil {
				return Answer{}, context.Cause(ctx)
			}
			a, err := w.lastLook(looks)
			return a, w.cut(ctx, err)
		}
	}
}

// compile compiles the outcomes that no waiting request has.
func (ws *Waiters) compile(outcomes []Outcome) (map[string]*expression.Expression, error) {
	if len(outcomes) > maxOutcomes {
		return nil, &InvalidError{fmt.Errorf("%d outcomes, want at most %d", len(outcomes), maxOutcomes)}
	}
	fresh := map[string]*expression.Expression{}
	var errs []error
	for _, o := range outcomes {
		ws.mu.Lock()
		known := ws.programs[o.Text] != nil
		ws.mu.Unlock()
		if known || fresh[o.Text] != nil {
			continue
		}
		e, err := expression.Compile(o.Text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", ParamUntil, o.Name, err))
			continue
		}
		fresh[o.Text] = e
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &InvalidError{err}
	}
	return fresh, nil
}

// join counts and registers w.
func (ws *Waiters) join(w *waiter) error {
	fresh, err := ws.compile(w.request.Outcomes)
	if err != nil {
		return err
	}
	for {
		known, err := ws.register(w, fresh)
		if known || err != nil {
			return err
		}
		// Who asked the same went away while we compiled the rest.
		if fresh, err = ws.compile(w.request.Outcomes); err != nil {
			return err
		}
	}
}

// register counts w and adds it to its scope; known is false if a program is missing.
func (ws *Waiters) register(w *waiter, fresh map[string]*expression.Expression) (known bool, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch {
	case w.request.Unbounded:
	case ws.perUser[w.request.User] >= ws.opts.PerUser:
		return false, &BusyError{Limit: ws.opts.PerUser}
	case ws.total >= ws.opts.Total:
		return false, &BusyError{Limit: ws.opts.Total, Total: true}
	}
	for _, o := range w.request.Outcomes {
		if ws.programs[o.Text] == nil && fresh[o.Text] == nil {
			return false, nil
		}
	}
	for _, o := range w.request.Outcomes {
		p := ws.programs[o.Text]
		if p == nil {
			p = &program{Expression: fresh[o.Text]}
			ws.programs[o.Text] = p
		}
		p.users++
		w.programs = append(w.programs, p)
	}
	if !w.request.Unbounded {
		ws.perUser[w.request.User]++
		ws.total++
	}
	at := scopeKey{w.request.User, w.request.Scope}
	s := ws.scopes[at]
	if s == nil {
		s = &scope{
			key: at, all: map[*waiter]struct{}{}, byKey: map[string]map[*waiter]struct{}{}, wide: map[*waiter]struct{}{},
			after: ws.opts.Store.Revision(),
		}
		ws.scopes[at] = s
	}
	w.scope, w.since = s, ws.opts.Store.Revision() // U1
	s.all[w] = struct{}{}
	if key := w.request.Key; key != "" {
		if s.byKey[key] == nil {
			s.byKey[key] = map[*waiter]struct{}{}
		}
		s.byKey[key][w] = struct{}{}
	} else {
		s.wide[w] = struct{}{}
	}
	if s.leader == nil {
		s.appoint(w)
	}
	return true, nil
}

// leave forgets w. If it was the leader, another one is.
func (ws *Waiters) leave(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.release(w.programs)
	if !w.request.Unbounded {
		if ws.perUser[w.request.User]--; ws.perUser[w.request.User] == 0 {
			delete(ws.perUser, w.request.User)
		}
		ws.total--
	}
	s := w.scope
	delete(s.all, w)
	if key := w.request.Key; key != "" {
		delete(s.byKey[key], w)
		if len(s.byKey[key]) == 0 {
			delete(s.byKey, key)
			if len(s.wide) == 0 {
				s.memo.forget(key)
			}
		}
	} else if delete(s.wide, w); len(s.wide) == 0 {
		s.memo.forgetAll() // most of it is of no use now; the rest is evaluated once more
	}
	if len(s.all) == 0 {
		delete(ws.scopes, s.key)
		return
	}
	if s.leader == w {
		for next := range s.all {
			s.appoint(next)
			break
		}
	}
}

// release gives programs back. The caller holds mu.
func (ws *Waiters) release(programs []*program) {
	for _, p := range programs {
		if p.users--; p.users == 0 {
			delete(ws.programs, p.String())
		}
	}
}

// appoint makes w the leader. The caller holds mu.
func (s *scope) appoint(w *waiter) {
	s.leader = w
	w.lead <- struct{}{} // there is room: a waiter is appointed once
}

// follow reads the scope's watch and judges each change for all waiting requests, until ctx is
// over or w, whose goroutine it is, has its own answer. An error is one of reading the state again for w, before looks is over.
func (ws *Waiters) follow(ctx, looks context.Context, w *waiter) error {
	s := w.scope
	for !w.isEnded() && ctx.Err() == nil {
		for ev, err := range ws.opts.Store.Watch(ctx, store.Query{Prefix: s.key.prefix}, ws.judgedUpTo(s)) {
			switch {
			case err != nil && ctx.Err() != nil:
				return nil
			case errors.Is(err, store.ErrExpired): // too far behind: read the state again
				if err := ws.rereadAll(looks, s, w); err != nil {
					return err
				}
			case err != nil:
				for _, other := range ws.waiting(s) {
					other.end(Answer{}, err)
				}
			case ev.Key == "":
				ws.judged(s, ev.Revision)
			default:
				// The event counts as judged when all have judged it. A leader that has its own
				// answer, or whose time is over, does not stay for the others: the next leader
				// gives them the event, again to some.
				if !ws.judgeAll(ctx, w, &ev) {
					return nil
				}
				ws.judged(s, ev.Revision)
				if ev.Deleted {
					s.memo.forget(ev.Key)
				}
			}
			if w.isEnded() {
				return nil
			}
		}
	}
	return nil
}

// judgeAll judges a change for all requests that it concerns, in a seat of the leader w. It returns false if w has ended, or its
// time is over.
func (ws *Waiters) judgeAll(ctx context.Context, w *waiter, ev *store.Event) bool {
	concerned := ws.concerned(w.scope, ev.Key)
	if len(concerned) == 0 {
		return true
	}
	seat, err := w.request.enter(ctx)
	for err != nil {
		if run.Pause(ctx, enterPause); ctx.Err() != nil {
			return false
		}
		seat, err = w.request.enter(ctx)
	}
	defer seat.Leave()
	for _, other := range concerned {
		if other.observe(ev); w.isEnded() || seat.Yield(ctx) != nil {
			return false
		}
	}
	return true
}

func (ws *Waiters) judgedUpTo(s *scope) store.Revision {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return s.after
}

func (ws *Waiters) judged(s *scope, upTo store.Revision) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	s.after = max(s.after, upTo)
}

func (ws *Waiters) waiting(s *scope) []*waiter {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.Collect(maps.Keys(s.all))
}

// concerned returns the requests that the object at key concerns.
func (ws *Waiters) concerned(s *scope, key string) []*waiter {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(s.byKey[key])+len(s.wide) == 0 {
		return nil
	}
	out := make([]*waiter, 0, len(s.byKey[key])+len(s.wide))
	out = slices.AppendSeq(out, maps.Keys(s.byKey[key]))
	return slices.AppendSeq(out, maps.Keys(s.wide))
}

// rereadAll makes all requests of a scope read the state again, each on its own goroutine. That is the one of w.
func (ws *Waiters) rereadAll(ctx context.Context, s *scope, w *waiter) error {
	ws.judged(s, ws.opts.Store.Revision())
	for _, other := range ws.waiting(s) {
		if other != w {
			other.askToReread()
		}
	}
	return w.reread(ctx)
}
