package fairness

import (
	"strings"
	"sync"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// A Level is a class of users with limits of its own. The names are those of upstream's priority levels for the
// requests of such users; System stands for the levels system, node-high, leader-election and workload-high.
type Level int

// The levels, in the order of [Levels].
const (
	Exempt    Level = iota // the group system:masters
	System                 // nodes, and the cluster's own components
	Workload               // service accounts
	Default                // other users
	Anonymous              // requests without a credential
	numLevels
)

// shares has the name of each level and its share of all limits in percent. Upstream's shares are 120, 100, 20 and 5.
var shares = [numLevels]struct {
	name    string
	percent int
}{
	Exempt:    {"exempt", 0},
	System:    {"system", 40},
	Workload:  {"workload-low", 35},
	Default:   {"global-default", 20},
	Anonymous: {"catch-all", 5},
}

// String returns the name of the level, as metrics have it.
func (l Level) String() string { return shares[l].name }

// Levels returns all levels.
func Levels() []Level { return []Level{Exempt, System, Workload, Default, Anonymous} }

// components are the users of the cluster's own components, when they come over HTTPS.
var components = map[string]bool{
	"system:apiserver":               true,
	"system:kube-controller-manager": true,
	"system:kube-scheduler":          true,
	"system:kube-proxy":              true,
	"system:kube-dns":                true,
}

// ownComponents begins the names of components that only this program has.
const ownComponents = "system:sampan:"

// groupKubeSystem has the service accounts of the namespace kube-system, which upstream counts as components.
const groupKubeSystem = auth.GroupServiceAccounts + ":kube-system"

// LevelOf returns the level of a user's requests.
func LevelOf(u *auth.User) Level {
	switch {
	case u.In(auth.GroupMasters):
		return Exempt
	case u.Name == auth.Anonymous, u.In(auth.GroupUnauthenticated):
		return Anonymous
	case components[u.Name], strings.HasPrefix(u.Name, ownComponents), u.In(auth.GroupNodes), u.In(groupKubeSystem):
		return System
	case u.In(auth.GroupServiceAccounts):
		return Workload
	}
	return Default
}

// A limit is how much a level and each flow in it may have of something.
type limit struct{ level, flow int }

// part returns the limit of a level with that share of total. Every flow may have least.
func part(total, percent, least int) limit {
	l := max(total*percent/100, least)
	return limit{level: l, flow: max((l+2)/3, least)}
}

// A level is the state that the flows of a Level share.
type level struct {
	kind   Level
	limits [resources]limit

	mu      sync.Mutex
	used    [resources]int     // guarded by mu
	flows   map[string]*Flow   // guarded by mu; those in use and a few more
	sweepAt int                // guarded by mu; the number of flows at which unused ones are dropped
	refused map[Resource]int64 // guarded by mu; refused requests by the resource that there was none of
}

// leastSweep is the number of flows that are kept although they are not in use.
const leastSweep = 256

func newLevel(kind Level, o Options) *level {
	percent := shares[kind].percent
	l := &level{kind: kind, flows: map[string]*Flow{}, sweepAt: leastSweep, refused: map[Resource]int64{}}
	l.limits[Bytes] = part(o.Bytes, percent, o.LargestBody)
	l.limits[Watches] = part(o.Watches, percent, 1)
	l.limits[Streams] = part(o.Streams, percent, 1)
	l.limits[Answers] = part(o.Answers, percent, 1)
	l.limits[Connections] = part(o.Connections, percent, 1)
	return l
}

// flow returns the flow of that name.
func (l *level) flow(name string) *Flow {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.flows[name]; f != nil {
		return f
	}
	if len(l.flows) >= l.sweepAt {
		for name, f := range l.flows {
			if f.used == [resources]int{} {
				delete(l.flows, name)
			}
		}
		l.sweepAt = max(leastSweep, 2*len(l.flows))
	}
	f := &Flow{level: l, name: name}
	l.flows[name] = f
	return f
}

// take counts n more of a resource, or fewer if n is negative. The caller holds mu.
func (l *level) take(f *Flow, r Resource, n int) {
	l.used[r] += n
	f.used[r] += n
}

// fits reports whether f may have n more of a resource. The caller holds mu.
func (l *level) fits(f *Flow, r Resource, n int) bool {
	return l.used[r]+n <= l.limits[r].level && f.used[r]+n <= l.limits[r].flow
}

// refuse counts a refused request for want of a resource. The caller holds mu.
func (l *level) refuse(of Resource) error {
	l.refused[of]++
	return &RefusedError{Level: l.kind, Resource: of}
}
