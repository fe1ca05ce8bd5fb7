package await

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// A Target is one object, or all objects that selectors pick.
type Target struct {
	// Resource says of what kind. With Request.Missing its Resource field may be
	// empty, for a kind that the server does not know yet; Kind then says what it
	// is called, and Group and Version narrow that down where they are set.
	Resource schema.GroupVersionResource

	// Kind is the kind for messages. Of a kind that is not known yet it is any
	// name that a CustomResourceDefinition may give it: Boat, boat, boats, a short
	// name, boats.example.com.
	Kind string

	Namespace string // empty for cluster-scoped resources and for all namespaces

	Name           string // empty means whatever the selectors pick
	Labels, Fields string // selectors; empty picks everything. Not used with Name

	// UID, Generation and ResourceVersion, if set, are those of the object that
	// the caller just wrote (A1). They need a Name.
	UID             types.UID
	Generation      int64
	ResourceVersion string
}

// A Ref names one object in messages.
type Ref struct {
	Resource  schema.GroupVersionResource
	Kind      string
	Namespace string
	Name      string
	UID       types.UID // empty for an object that was never seen
}

// String returns kind/name, or kind.group/name, as kubectl prints objects; the kind
// alone if there is no name.
func (r Ref) String() string {
	kind := strings.ToLower(r.Kind)
	if kind == "" {
		kind = r.Resource.Resource
	}
	if r.Resource.Group != "" {
		kind += "." + r.Resource.Group
	}
	if r.Name == "" {
		return kind
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

	// Count, with selectors, is how many of the objects that they pick must be done,
	// all selectors together; 0 means all of them, and at least one. The wait fails when
	// so many have failed that too few are left. Targets with a name must all be done.
	Count int

	// Any means that one done object is enough. The wait fails, or nothing is there,
	// only if that is so of all.
	Any bool

	// Missing means that objects, namespaces and kinds that do not exist yet are waited
	// for, and so are objects that take the place of those that go. Without it, a named
	// object that is not there is Vanished, a selector that picks nothing
	// NothingMatched, and a kind that is not served an error.
	Missing bool

	// Quiet means that the caller does not care how the wait goes on, but for what is
	// done and for the connection. The server may then be asked to wait (A8).
	Quiet bool

	// Resolve finds out what a target is of which only the Kind is known, by asking
	// discovery. An error that says that there is no such kind (meta.IsNoMatchError,
	// IsNotFound) means not yet, and so does one that may pass; any other that the
	// server gave ends the wait. It is called on another goroutine, again when
	// CustomResourceDefinitions change, and with pauses of up to 10 s otherwise,
	// for kinds that come without a definition. Nil means that only definitions are
	// looked at.
	Resolve func(ctx context.Context, t Target) (Target, error)
}

func (r Request) check() (Request, error) {
	if r.For.isZero() {
		return r, errors.New("await: Request.For is empty")
	}
	if len(r.Targets) == 0 {
		return r, errors.New("await: Request.Targets is empty")
	}
	for _, t := range r.Targets {
		if t.Resource.Resource == "" && (!r.Missing || t.Kind == "") {
			return r, fmt.Errorf("await: the target %q has no resource", t.Name)
		}
		if t.Name == "" && (t.UID != "" || t.Generation != 0 || t.ResourceVersion != "") {
			return r, fmt.Errorf("await: a target of %s has a UID, generation or resource version but no name", t.Resource.Resource)
		}
	}
	if r.Count < 0 {
		return r, fmt.Errorf("await: the count %d is negative", r.Count)
	}
	if r.Count > 0 && !slices.ContainsFunc(r.Targets, func(t Target) bool { return t.Name == "" }) {
		return r, errors.New("await: a count needs a target with selectors")
	}
	if r.Timeout < 0 {
		return r, fmt.Errorf("await: the timeout %v is negative", r.Timeout)
	}
	if r.Grace < 0 {
		return r, fmt.Errorf("await: the grace %v is negative", r.Grace)
	}
	if r.Grace == 0 {
		r.Grace = DefaultGrace
	}
	r.Targets = slices.Clone(r.Targets) // what is found out about them is not the caller's
	return r, nil
}

// A Progress is news about one object, or about the connection.
type Progress struct {
	Object  Ref
	Verdict Verdict
	Absent  bool // the object does not exist (any more); without a name, selectors pick nothing

	Parts  []Part          // the owned objects that hold it up, worst first, at most [MaxParts]; nil when done
	More   int             // how many further parts hold it up
	Events []*corev1.Event // the last three about it and its parts, oldest first; in an Outcome and from [Look] only

	// Lost is why the server cannot be reached at the moment. Nothing else is
	// set then. The wait goes on.
	Lost error

	// Back says that the server can be reached again. Nothing else is set then.
	Back bool

	// Gone says that the object, of which news were told, no longer counts (A3):
	// the selector picks it no more, or it does not exist.
	Gone bool
}

// A Result says how a wait ended.
type Result int

// The ends of a wait.
const (
	AllDone        Result = iota // every object reached the degree
	SomeFailed                   // at least one object failed for good
	TimedOut                     // the deadline came first
	Vanished                     // a named object is not there, or was deleted in mid-wait
	NothingMatched               // selectors picked nothing, or what they picked went with its namespace
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
