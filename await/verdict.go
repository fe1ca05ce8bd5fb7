package await

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sampan-io/sampan/client"
)

// A State says whether an object is done.
type State int

// The zero State is Waiting.
const (
	Waiting State = iota // not done, and not failed
	Done                 // the degree is reached
	Failed               // the degree will not be reached, certainly or likely; see [Certainty]
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

// A Certainty says whether a failure may recover. It has no meaning in other states.
type Certainty int

const (
	// Likely failures sometimes recover: an image that cannot be pulled at the moment, a
	// container that keeps crashing.
	Likely Certainty = iota
	// Certain failures stay until an object is changed: a failed Job, an
	// image name that cannot be parsed, an exceeded quota.
	Certain
)

func (c Certainty) String() string {
	if c == Certain {
		return "certain"
	}
	return "likely"
}

// A Verdict is the result of judging one object. The zero Verdict is Waiting, without a cause.
type Verdict struct {
	State     State
	Certainty Certainty // of a failure
	Cause     string    // why it is waiting or failed, or why it is not waited for although nothing has happened; for people; may be empty

	// RolledBack reports that the change that was waited for has been rolled back, and the object is as it was before.
	// The verdict is a certain failure.
	RolledBack bool

	// Logged reports that a container of the pod has run, so that its log may explain more. It is not set for the
	// degree Deleted.
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

// severity orders verdicts by how much they hold up a set: certain failures have the highest, then likely failures, then
// waiting with a cause.
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

// because appends a cause to a verdict, unless it has that cause already.
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

// A View is the input of a verdict. [Judge] and [Look] only read it.
type View struct {
	// Object is the object itself, of its Go type or unstructured; nil if it does not exist.
	Object client.Object

	Pods     []*corev1.Pod                // its pods; a pod without owner references counts as its own
	Slices   []*discoveryv1.EndpointSlice // EndpointSlices of a Service, or of Services that may select the pods
	Warnings []*corev1.Event              // warnings about any of these objects

	// Others are further objects that belong to it, directly or not, in any order:
	// the replica sets of a Deployment, the jobs of a CronJob.
	Others []client.Object
}

// A Part is an object that belongs to another and holds it up.
type Part struct {
	Object  Ref
	Verdict Verdict
	Parts   []Part // its own parts that hold it up, worst first; at most [MaxParts]
	More    int    // the number of further parts that hold it up
}

// MaxParts is how many parts of one object are listed. The others are counted.
const MaxParts = 10

// counted returns "1 pod", "2 pods".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
