package priority

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
)

const (
	// queueTimeout is how long a request without a deadline waits for a seat: upstream's quarter of the request timeout of
	// one minute. One with a deadline waits for a quarter of its time.
	queueTimeout = 15 * time.Second

	// Seats are divided among the levels soon after a request had to wait, and again in each period as long as a
	// level needs more than its nominal seats. Upstream divides them every ten seconds.
	soon   = time.Second
	period = 10 * time.Second
)

// A Dispatcher is safe for concurrent use.
type Dispatcher struct {
	seats  int
	made   time.Time // what tickets count from: the monotonic clock alone costs half of time.Now
	config atomic.Pointer[snapshot]
	round  round

	mu      sync.Mutex // guards the rest
	seed    maphash.Seed
	timer   *time.Timer // nil before the first division
	pending bool        // the timer runs
	due     time.Time   // when it fires
	divided time.Time   // when seats were divided last
}

// New returns a dispatcher with so many seats, which has the mandatory schemas and levels. Its goroutine runs only while
// seats are borrowed.
func New(seats int) *Dispatcher {
	d := &Dispatcher{seats: seats, made: time.Now(), seed: maphash.MakeSeed()}
	d.Configure(Config{})
	return d
}

// Configure makes the dispatcher use these objects, and the mandatory ones. Requests that wait or are executed
// are not affected; those of a level that is gone are executed with the seats that it had.
func (d *Dispatcher) Configure(c Config) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c = c.complete()
	old := d.config.Load()
	next := &snapshot{seed: d.seed}
	levels := map[string]*level{}
	plans := map[string]plan{}
	for _, l := range c.Levels {
		p, err := planOf(l)
		if err != nil {
			continue // its schemas are dangling
		}
		known := old.level(l.Name)
		if known == nil || known.header[0] != p.uid { // a new one may have other requests, as an object of that name
			known = &level{name: l.Name, header: []string{p.uid}, exempt: p.exempt}
		}
		levels[l.Name], plans[l.Name] = known, p
		next.levels = append(next.levels, known)
		next.shares += p.shares
	}
	slices.SortFunc(next.levels, func(a, b *level) int { return strings.Compare(a.name, b.name) })
	for _, l := range next.levels {
		next.seats += l.configure(plans[l.name], d.seats, next.shares)
	}
	for _, s := range c.Schemas {
		l := levels[s.Spec.PriorityLevelConfiguration.Name]
		if l == nil {
			continue
		}
		compiled := &schema{
			name: s.Name, header: []string{string(s.UID)}, precedence: s.Spec.MatchingPrecedence, rules: s.Spec.Rules, level: l,
			seed: maphash.String(d.seed, s.Name), stats: old.stats(s.Name, l.name),
		}
		if m := s.Spec.DistinguisherMethod; m != nil {
			compiled.distinguisher = m.Type
		}
		next.schemas = append(next.schemas, compiled)
		if s.Name == flowcontrolv1.FlowSchemaNameCatchAll {
			next.rest = compiled
		}
	}
	d.config.Store(next)
}

// level returns the level of that name, or nil.
func (c *snapshot) level(name string) *level {
	if c == nil {
		return nil
	}
	if i := slices.IndexFunc(c.levels, func(l *level) bool { return l.name == name }); i >= 0 {
		return c.levels[i]
	}
	return nil
}

// stats returns the counters of a schema in a level, or new ones.
func (c *snapshot) stats(schema, level string) *stats {
	if c != nil {
		for _, s := range c.schemas {
			if s.name == schema && s.level.name == level {
				return s.stats
			}
		}
	}
	return &stats{}
}

// User returns the rules for a user. Before is the result of an earlier call, or nil; it is returned if it still holds.
func (d *Dispatcher) User(before *User, u *auth.User) *User {
	config := d.config.Load()
	if before != nil && before.config == config && same(before.user, u) {
		return before
	}
	return newUser(config, u)
}

// same reports whether two users match the same schemas.
func same(a, b *auth.User) bool {
	return a == b || a.Name == b.Name && slices.Equal(a.Groups, b.Groups)
}

// Classify returns the class of a request.
func (u *User) Classify(r *Request) Class { return u.classify(r) }

// A reason says why a request is not executed.
type reason int

const (
	none reason = iota
	queueFull
	overLimit
	timedOut
	cancelled
	reasons
)

// String returns the reason as upstream's metrics name it.
func (r reason) String() string {
	return [reasons]string{"", "queue-full", "concurrency-limit", "time-out", "cancelled"}[r]
}

// RetryAfter is the number of seconds after which a refused client should try again, as upstream has it.
const RetryAfter = 1

// A RefusedError says that a request found no seat.
type RefusedError struct {
	Schema, Level string
	Reason        string // queue-full, concurrency-limit or time-out
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("too many requests, please try again later (priority level %s: %s)", e.Level, e.Reason)
}

// Seats returns how many seats a list takes that reads so many objects, as upstream counts them: one for each hundred. The level
// of the request may have a lower limit.
func Seats(objects int) int { return min(max((objects+99)/100, 1), mostSeats) }

// Enter takes seats for a request; it waits for them in a queue of its level. Its error is a [*RefusedError], or
// context.Cause(ctx) when ctx is over.
func (d *Dispatcher) Enter(ctx context.Context, c Class, seats int) (Ticket, error) {
	s := c.schema
	l := s.level
	if l.exempt {
		t := Ticket{dispatcher: d, schema: s, seats: seats, since: time.Since(d.made)}
		s.stats.begin(seats)
		return t, nil
	}
	t, w, refused := l.enter(s, c.flow, seats)
	switch {
	case refused != none:
		d.demand()
		return t, d.refuse(c, refused)
	case w == nil:
		t.dispatcher, t.since = d, time.Since(d.made)
		s.stats.begin(t.seats)
		return t, nil
	}
	d.demand()
	return d.enqueued(ctx, c, w)
}

// enqueued waits for the seats of a request in a queue.
func (d *Dispatcher) enqueued(ctx context.Context, c Class, w *waiter) (Ticket, error) {
	s := c.schema
	s.stats.enqueue(w.seats)
	refused, err := s.level.wait(ctx, w, patience(ctx, w.since))
	now := time.Now()
	s.stats.dequeue(w.seats, now.Sub(w.since), refused == none)
	switch {
	case err != nil:
		s.stats.rejected[refused].Add(1)
		return Ticket{}, err
	case refused != none:
		return Ticket{}, d.refuse(c, refused)
	}
	s.stats.begin(w.seats)
	return Ticket{dispatcher: d, schema: s, queue: w.queue, seats: w.seats, since: now.Sub(d.made), waited: now.Sub(w.since)}, nil
}

func patience(ctx context.Context, now time.Time) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(deadline.Sub(now)/4, queueTimeout)
	}
	return queueTimeout
}

func (d *Dispatcher) refuse(c Class, why reason) error {
	c.schema.stats.rejected[why].Add(1)
	return &RefusedError{Schema: c.schema.name, Level: c.schema.level.name, Reason: why.String()}
}

// Leave gives the seats back. A Ticket that has none is not changed. If others wait for the seats, they get them once the
// processors have done all else that is ready, and Leave may wait for that.
func (t *Ticket) Leave() {
	if t.schema == nil {
		return
	}
	done := *t
	t.schema = nil
	if done.wanted() {
		done.dispatcher.round.leave(done)
		return
	}
	done.giveBack()
}

// giveBack gives the seats back now.
func (t *Ticket) giveBack() {
	s := t.schema
	took := time.Since(t.dispatcher.made) - t.since
	if !s.level.exempt {
		s.level.leave(t.queue, t.seats, took)
	}
	s.stats.end(t.seats, took)
}

// demand makes the seats be divided soon, because a level needs more than it has.
func (d *Dispatcher) demand() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	at := now
	if last := d.divided.Add(soon); last.After(at) {
		at = last
	}
	if !d.pending || d.due.After(at) {
		d.schedule(at.Sub(now), at)
	}
}

// schedule sets the timer. The caller holds mu.
func (d *Dispatcher) schedule(after time.Duration, at time.Time) {
	d.pending, d.due = true, at
	if d.timer == nil {
		d.timer = time.AfterFunc(after, d.divide)
		return
	}
	d.timer.Reset(after)
}

// divide divides the seats among the levels, and goes on as long as one needs more than its nominal seats.
func (d *Dispatcher) divide() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.divided = time.Now()
	d.pending = false
	config := d.config.Load()
	var limited []*level
	var needs []need
	lent := false
	for _, l := range config.levels {
		if l.exempt {
			continue
		}
		n := l.need()
		limited, needs = append(limited, l), append(needs, n)
		lent = lent || n.wanted > l.nominal()
	}
	if !lent {
		for _, l := range limited {
			l.set(l.nominal())
		}
		return
	}
	for i, seats := range divide(config.seats, needs) {
		limited[i].set(seats)
	}
	d.schedule(period, d.divided.Add(period))
}

// nominal returns the seats that the level has by its shares.
func (l *level) nominal() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fair
}
