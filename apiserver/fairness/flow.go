package fairness

import (
	"fmt"
	"maps"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// A Resource is what flows have a bounded amount of.
type Resource int

// The resources.
const (
	Bytes       Resource = iota // of request bodies
	Watches                     // watches under way
	Streams                     // logs, proxied requests and the like under way
	Answers                     // answers that gave back their seat because the client is slow to read
	Connections                 // open connections
	resources
)

// String returns the resource's name in messages and metrics.
func (r Resource) String() string { return resourceNames[r] }

var resourceNames = [resources]string{
	Bytes: "bytes of request bodies", Watches: "watches", Streams: "streams",
	Answers: "answers to slow readers", Connections: "connections",
}

// Options configures [Limits]: how much all levels but exempt have together. 0 means no more than the least, which
// is one of everything for each level.
type Options struct {
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

// Refused returns how many requests were refused so far for want of each resource, by users of a level.
func (l *Limits) Refused(kind Level) map[Resource]int64 {
	v := l.levels[kind]
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.refused)
}

// A Flow is one user, or one address of users without a name, within a level.
type Flow struct {
	level     *level
	name      string
	unlimited bool

	used [resources]int // guarded by the level's mu
}

// RetryAfter is the number of seconds after which a refused client should try again, as upstream has it.
const RetryAfter = 1

// A RefusedError says that a user has, or all users of the level together have, as much as they may have.
type RefusedError struct {
	Level    Level
	Resource Resource // that there was none of
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("too many requests, please try again later: the limit of %s is reached (users of the class %s)", e.Resource, e.Level)
}

// Level returns the level of the flow.
func (f *Flow) Level() Level { return f.level.kind }

// Take takes n of a resource at once, or returns a [*RefusedError].
func (f *Flow) Take(r Resource, n int) error {
	if f.unlimited {
		return nil
	}
	l := f.level
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.fits(f, r, n) {
		return l.refuse(r)
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
}

// Flows returns how many flows of a level are known.
func (l *Limits) Flows(kind Level) int {
	v := l.levels[kind]
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.flows)
}
