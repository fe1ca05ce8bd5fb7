package await

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sampan-io/sampan/client"
)

// A State is the short answer to "is it done?".
type State int

// The zero State is Waiting.
const (
	Waiting State = iota // not done, and nothing says that it can't be
	Done                 // the degree that was asked for is reached
	Failed               // it will not be, certainly or likely; see [Certainty]
)

func (s State) String() string {
	switch s {
	case Waiting:
		return "waiting"
	case Done:
		return "done"
	case Failed:
		return "failed"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// A Certainty says how sure a failure is. It means nothing in other states.
type Certainty int

const (
	// Likely failures sometimes heal: an image that can't be pulled now, a
	// container that keeps crashing.
	Likely Certainty = iota
	// Certain failures stay until somebody changes something: a failed Job, an
	// image name that can't be parsed, a quota that is used up.
	Certain
)

func (c Certainty) String() string {
	if c == Certain {
		return "certain"
	}
	return "likely"
}

// A Verdict is what is known about one object. The zero Verdict is waiting for
// no known cause.
type Verdict struct {
	State     State
	Certainty Certainty // of a failure
	Cause     string    // why it is waiting or failed, in words; may be empty

	// RolledBack says of a failure that what was waited for has been taken back, so
	// that the object is as it was before. It is certain.
	RolledBack bool

	// Logged says of a pod that a container of it has run, so that there is a log that
	// may say more. It is not said of one that is waited for to go.
	Logged bool
}

func (v Verdict) String() string {
	s := v.State.String()
	if v.State == Failed {
		s += " (" + v.Certainty.String() + ")"
	}
	if v.Cause != "" {
		s += ": " + v.Cause
	}
	return s
}

func done() Verdict { return Verdict{State: Done} }

func waiting(format string, args ...any) Verdict {
	return Verdict{State: Waiting, Cause: fmt.Sprintf(format, args...)}
}

func failed(c Certainty, format string, args ...any) Verdict {
	return Verdict{State: Failed, Certainty: c, Cause: fmt.Sprintf(format, args...)}
}

// severity orders verdicts by how much they hold up a set: certain failures
// first, then likely ones, then whatever has a cause.
func (v Verdict) severity() int {
	switch {
	case v.State == Failed && v.Certainty == Certain:
		return 3
	case v.State == Failed:
		return 2
	case v.State == Waiting && v.Cause != "":
		return 1
	case v.State == Waiting, v.State == Done:
	}
	return 0
}

// because adds a cause to a verdict that has one already.
func (v Verdict) because(cause string) Verdict {
	switch {
	case cause == "" || strings.Contains(v.Cause, cause):
	case v.Cause == "":
		v.Cause = cause
	default:
		v.Cause += "; " + cause
	}
	return v
}

// A View is everything that a verdict is made from. [Judge] and [Look] only read
// it.
type View struct {
	// Object is the object itself, of its Go type or unstructured; nil when
	// there is none.
	Object client.Object

	Pods     []*corev1.Pod                // its pods; one that names no controller counts as its own
	Slices   []*discoveryv1.EndpointSlice // the endpoints of a Service, or those that pods may be in
	Warnings []*corev1.Event              // warnings about any of these objects

	// Others is whatever else belongs to it, in any order and at any remove:
	// the replica sets of a Deployment, the jobs of a CronJob.
	Others []client.Object
}

// A Part is an object that belongs to another and holds it up.
type Part struct {
	Object  Ref
	Verdict Verdict
	Parts   []Part // what holds it up itself, worst first; at most [MaxParts]
	More    int    // how many further parts hold it up
}

// MaxParts is how many parts of one object are told. Those left out are counted.
const MaxParts = 10

// counted is "1 pod", "2 pods".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
