package await

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// A Target is one object, or all objects that selectors pick.
type Target struct {
	Resource  schema.GroupVersionResource
	Kind      string // for messages
	Namespace string // empty for cluster-scoped resources and for all namespaces

	Name           string // empty means whatever the selectors pick
	Labels, Fields string // selectors; empty picks everything. Not used with Name

	// UID and Generation, if set, are those of the object that the caller just
	// wrote (A1). They need a Name.
	UID        types.UID
	Generation int64
}

// A Ref names one object in messages.
type Ref struct {
	Resource  schema.GroupVersionResource
	Kind      string
	Namespace string
	Name      string
	UID       types.UID // empty for an object that was never seen
}

// String returns kind/name, or kind.group/name, as kubectl prints objects.
func (r Ref) String() string {
	kind := strings.ToLower(r.Kind)
	if kind == "" {
		kind = r.Resource.Resource
	}
	if r.Resource.Group != "" {
		kind += "." + r.Resource.Group
	}
	return kind + "/" + r.Name
}

// A FailMode says what likely failures do to a wait. Certain ones always end it.
type FailMode int

// The modes.
const (
	FailAfterGrace FailMode = iota // end it when they have lasted for Request.Grace
	FailAtOnce                     // end it
	FailNever                      // are only told
)

// DefaultGrace is how long a likely failure may last. It is longer than the
// first back-offs of image pulls and crashed containers (10, 20, 40 s together),
// so that a thing that heals by being tried again does.
const DefaultGrace = 90 * time.Second

// A Request says what to wait for.
type Request struct {
	For     Degree
	Targets []Target

	// Timeout limits the whole wait; 0 means no limit. Once means to look and
	// not to wait at all.
	Timeout time.Duration
	Once    bool

	Fail  FailMode
	Grace time.Duration // 0 means DefaultGrace
}

func (r Request) check() (Request, error) {
	if r.For == (Degree{}) {
		return r, errors.New("await: Request.For is empty")
	}
	if len(r.Targets) == 0 {
		return r, errors.New("await: Request.Targets is empty")
	}
	for _, t := range r.Targets {
		if t.Resource.Resource == "" {
			return r, fmt.Errorf("await: the target %q has no resource", t.Name)
		}
		if t.Name == "" && (t.UID != "" || t.Generation != 0) {
			return r, fmt.Errorf("await: a target of %s has a UID or generation but no name", t.Resource.Resource)
		}
	}
	if r.Timeout < 0 {
		return r, fmt.Errorf("await: the timeout %v is negative", r.Timeout)
	}
	if r.Grace == 0 {
		r.Grace = DefaultGrace
	}
	return r, nil
}

// A Progress is news about one object, or about the connection.
type Progress struct {
	Object  Ref
	Verdict Verdict
	Absent  bool // the object does not exist (any more)

	// Lost is why the server cannot be reached at the moment. Nothing else is
	// set then. The wait goes on.
	Lost error
}

// A Result says how a wait ended.
type Result int

// The ends of a wait.
const (
	AllDone        Result = iota // every object reached the degree
	SomeFailed                   // at least one object failed for good
	TimedOut                     // the deadline came first
	Vanished                     // a named object is not there, or was deleted in mid-wait
	NothingMatched               // selectors picked nothing
)

func (r Result) String() string {
	switch r {
	case AllDone:
		return "all done"
	case SomeFailed:
		return "some failed"
	case TimedOut:
		return "timed out"
	case Vanished:
		return "vanished"
	case NothingMatched:
		return "nothing matched"
	}
	return fmt.Sprintf("Result(%d)", int(r))
}

// An Outcome is the result of a wait and the last verdict on each object.
type Outcome struct {
	Result  Result
	Objects []Progress
}
