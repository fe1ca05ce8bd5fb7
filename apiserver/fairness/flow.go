package fairness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// A Resource is what flows have a bounded amount of.
type Resource int

// The resources.
const (
	Seats       Resource = iota // requests that are executed, watches and streams aside
	Bytes                       // of request bodies
	Watches                     // watches under way
	Streams                     // logs, proxied requests and the like under way
	Answers                     // answers that gave back their seat because the client is slow to read
	Connections                 // open connections
	resources
)

var resourceNames = [resources]string{ //nolint:gochecknoglobals // a constant table
	Seats: "requests", Bytes: "bytes of request bodies", Watches: "watches", Streams: "streams",
	Answers: "answers to slow readers", Connections: "connections",
}

// Options configures [Limits]: how much all levels but exempt have together. 0 means no more than the least, which
// is one of everything for each level.
type Options struct {
	Seats       int
	Bytes       int
	LargestBody int // bytes of the largest body that any client may send
	Watches     int
	Streams     int
	Answers     int
	Connections int
}

// Limits are the levels and their flows. They are safe for concurrent use.
type Limits struct {
	levels [numLevels]*level
	exempt *Flow
}

// New returns limits of which nothing is used.
func New(o Options) *Limits {
	l := &Limits{}
	for _, kind := range Levels() {
		l.levels[kind] = newLevel(kind, o)
	}
	l.exempt = &Flow{level: l.levels[Exempt], name: "exempt", unlimited: true}
	return l
}

// Flow returns the flow of a user's requests, which come from the given address.
func (l *Limits) Flow(u *auth.User, address string) *Flow {
	switch kind := LevelOf(u); kind {
	case Exempt:
		return l.exempt
	case Anonymous:
		return l.levels[kind].flow(address)
	default:
		return l.levels[kind].flow(u.Name)
	}
}

// Stats is how a level is used at the moment.
type Stats struct {
	Executing, Waiting int
	Refused            map[string]int64 // requests so far, by the reason that [RefusedError] has
}

// Stats returns how a level is used.
func (l *Limits) Stats(kind Level) Stats {
	v := l.levels[kind]
	v.mu.Lock()
	defer v.mu.Unlock()
	return Stats{Executing: v.used[Seats], Waiting: v.waiting, Refused: maps.Clone(v.refused)}
}

// A Flow is one user, or one address of users without a name, within a level.
type Flow struct {
	level     *level
	name      string
	unlimited bool

	// Guarded by the level's mu.
	used  [resources]int
	queue []*waiter
}

// A waiter is a request that waits for a seat.
type waiter struct{ seat chan struct{} } // closed when it has one

// Reasons for which requests are refused, as upstream's metrics name them.
const (
	ReasonQueueFull = "queue-full"
	ReasonTimeOut   = "time-out"
	ReasonLimit     = "concurrency-limit"
)

// RetryAfter is the number of seconds after which a refused client should try again, as upstream has it.
const RetryAfter = 1

// queueTimeout is how long a request waits for a seat: upstream's quarter of the request timeout of one minute.
const queueTimeout = 15 * time.Second

// A RefusedError says that a user has, or all users of the level together have, as much as they may have.
type RefusedError struct {
	Level    Level
	Reason   string
	Resource Resource // that there was none of
}

func (e *RefusedError) Error() string {
	const text = "too many requests, please try again later"
	if e.Reason == ReasonLimit {
		return fmt.Sprintf("%s: the limit of %s is reached (priority level %s)", text, resourceNames[e.Resource], e.Level)
	}
	return fmt.Sprintf("%s (priority level %s: %s)", text, e.Level, e.Reason)
}

// Level returns the level of the flow.
func (f *Flow) Level() Level { return f.level.kind }

// Sit takes a seat; it waits for one, but not long and only if few others do. Its error is a [*RefusedError], or
// context.Cause(ctx) when ctx is over. Who got a seat gives it back with [Flow.Leave].
func (f *Flow) Sit(ctx context.Context) error {
	if f.unlimited {
		return nil
	}
	l := f.level
	l.mu.Lock()
	if l.fits(f, Seats, 1) {
		l.take(f, Seats, 1)
		l.mu.Unlock()
		return nil
	}
	if len(f.queue) >= l.queue.flow || l.waiting >= l.queue.level {
		defer l.mu.Unlock()
		return l.refuse(ReasonQueueFull, Seats)
	}
	w := &waiter{seat: make(chan struct{})}
	if f.queue = append(f.queue, w); len(f.queue) == 1 {
		l.ring = append(l.ring, f)
	}
	l.waiting++
	l.mu.Unlock()
	return f.wait(ctx, w)
}

// wait waits until w has a seat.
func (f *Flow) wait(ctx context.Context, w *waiter) error {
	timeout := time.NewTimer(queueTimeout)
	defer timeout.Stop()
	select {
	case <-w.seat:
		return nil
	case <-timeout.C:
	case <-ctx.Done():
	}
	l := f.level
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(f.queue, w)
	switch {
	case i < 0 && ctx.Err() != nil: // it got a seat at the same moment
		l.take(f, Seats, -1)
		l.grant()
		return context.Cause(ctx)
	case i < 0:
		return nil
	}
	f.queue = slices.Delete(f.queue, i, i+1)
	l.waiting--
	if len(f.queue) == 0 {
		l.ring = slices.DeleteFunc(l.ring, func(other *Flow) bool { return other == f })
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return l.refuse(ReasonTimeOut, Seats)
}

// Leave gives a seat back.
func (f *Flow) Leave() { f.Return(Seats, 1) }

// Take takes n of a resource at once, or returns a [*RefusedError].
func (f *Flow) Take(r Resource, n int) error {
	if f.unlimited {
		return nil
	}
	l := f.level
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.fits(f, r, n) {
		return l.refuse(ReasonLimit, r)
	}
	l.take(f, r, n)
	return nil
}

// Return gives n of a resource back.
func (f *Flow) Return(r Resource, n int) {
	if f.unlimited {
		return
	}
	f.level.mu.Lock()
	defer f.level.mu.Unlock()
	f.level.take(f, r, -n)
	if r == Seats {
		f.level.grant()
	}
}

// Flows returns how many flows of a level are known.
func (l *Limits) Flows(kind Level) int {
	v := l.levels[kind]
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.flows)
}
