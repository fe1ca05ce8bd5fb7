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

// A Target is one object by name, or all objects that selectors match.
type Target struct {
	// Resource is the resource of the objects. With Request.Missing its Resource field may be
	// empty, for a kind that the server does not serve yet. Kind then names the kind, and Group and Version,
	// if set, restrict it.
	Resource schema.GroupVersionResource

	// Kind is the kind for messages. For a kind that the server does not serve yet it is any name that a
	// CustomResourceDefinition may give the kind: Boat, boat, boats, a short name, boats.example.com.
	Kind string

	Namespace string // empty for cluster-scoped resources and for all namespaces

	Name           string // empty for all objects that the selectors match
	Labels, Fields string // selectors; an empty one matches everything. Not used with Name

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
	UID       types.UID // empty if the object was never seen
}

// String returns kind/name or kind.group/name, as kubectl prints objects. It returns only the kind if the name is empty.
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

// A FailMode says whether likely failures end a wait. Certain failures always do.
type FailMode int

// The modes.
const (
	FailAfterGrace FailMode = iota // likely failures end the wait when they have lasted for Request.Grace
	FailAtOnce                     // likely failures end the wait at once
	FailNever                      // likely failures are only reported
)

// DefaultGrace is how long a likely failure may last. It is longer than the first back-offs of image pulls and crashed
// containers together (10, 20 and 40 s), so that a failure that a retry resolves does not end the wait.
const DefaultGrace = 90 * time.Second

// A Request is the subject of a wait.
type Request struct {
	For     Degree
	Targets []Target

	// Timeout limits the whole wait; 0 means no limit. Once means to judge the
	// current state and not to wait.
	Timeout time.Duration
	Once    bool

	Fail  FailMode
	Grace time.Duration // 0 means DefaultGrace

	// Count is how many of the objects that the selectors match must be done, all
	// selectors together; 0 means all of them, and at least one. The wait fails when
	// so many have failed that too few are left. Targets with a name must all be done.
	Count int

	// Any means that one done object is enough. The wait fails only if all objects fail.
	Any bool

	// Missing means to wait for objects, namespaces and kinds that do not exist yet, and
	// for objects that replace deleted ones. Without it, the result is Vanished if a
	// named object does not exist and NothingMatched if a selector matches nothing, and
	// a kind that is not served is an error.
	Missing bool

	// Unused has claims count as ready that no pod uses yet and whose storage class waits for that (WaitForFirstConsumer).
	Unused bool

	// Quiet means that the caller needs no progress except done objects and the
	// state of the connection. The wait may then be one blocking read (A8).
	Quiet bool

	// Resolve finds the resource of a target of which only the Kind is known, by
	// discovery. If it returns an error that the kind does not exist (meta.IsNoMatchError,
	// IsNotFound) or that may pass, it is called again; any other error of the server
	// ends the wait. It is called on another goroutine: when CustomResourceDefinitions
	// change, and otherwise with pauses of up to 10 s, for kinds without a definition.
	// If it is nil, only definitions are searched.
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
	r.Targets = slices.Clone(r.Targets) // the wait changes them when it resolves a kind
	return r, nil
}

// A Progress is a change during a wait: a [Status], [Dropped], [ConnectionLost] or [ConnectionRestored].
type Progress interface{ isProgress() }

// A Status is the verdict on one object.
type Status struct {
	Object  Ref
	Verdict Verdict
	Absent  bool // the object does not exist; without a name, the selectors match nothing

	Parts  []Part          // the parts that hold it up, worst first, at most [MaxParts]; nil when done
	More   int             // the number of further parts that hold it up
	Events []*corev1.Event // the last three events about it and its parts, oldest first; only in an Outcome and from [Look]
}

// Dropped reports that an object of which there was a [Status] no longer counts (A3): the selector does not match it any
// more, or it does not exist. Without a name, the selectors match objects again.
type Dropped struct {
	Object Ref
	Absent bool // the object does not exist
}

// ConnectionLost reports that the server cannot be reached at the moment. The wait continues.
type ConnectionLost struct{ Err error }

// ConnectionRestored reports that the server can be reached again.
type ConnectionRestored struct{}

func (Status) isProgress()             {}
func (Dropped) isProgress()            {}
func (ConnectionLost) isProgress()     {}
func (ConnectionRestored) isProgress() {}

// A Result says how a wait ended.
type Result int

// The ends of a wait.
const (
	AllDone        Result = iota // every object reached the degree
	SomeFailed                   // at least one object failed for good
	TimedOut                     // the deadline was reached
	Vanished                     // a named object does not exist, or was deleted during the wait
	NothingMatched               // the selectors matched nothing, or their objects were deleted with the namespace
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

// An Outcome is the result of a wait and the last status of each object.
type Outcome struct {
	Result  Result
	Objects []Status
}
