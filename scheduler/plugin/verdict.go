package plugin

import (
	"fmt"
	"strings"
)

// A Code says what kind of answer a [Verdict] is. The names in comments are upstream's.
type Code uint8

// The codes. Each point says which of them it understands; another one there is an error.
const (
	Success       Code = iota // yes
	Unschedulable             // no, but it could if other pods were not there (Unschedulable)
	Unresolvable              // no, whatever pods are there (UnschedulableAndUnresolvable)
	Wait                      // not yet: something outside has to happen first (Wait, Pending)
	Skipped                   // the plug-in has nothing to do with this pod (Skip)
	Failed                    // there is no answer, for an error (Error)
)

func (c Code) String() string {
	switch c {
	case Success:
		return "success"
	case Unschedulable:
		return "unschedulable"
	case Unresolvable:
		return "unresolvable"
	case Wait:
		return "wait"
	case Skipped:
		return "skip"
	case Failed:
		return "error"
	}
	return fmt.Sprintf("Code(%d)", uint8(c))
}

// A Verdict is the answer of a plug-in. The zero Verdict is a yes. Slices in it may be shared
// and must not be changed.
type Verdict struct {
	Code   Code
	Reason string   // why not, in words for the pod's event (plugin-P5)
	Also   []string // further reasons, each counted by itself
	Err    error    // if Code is Failed
}

// Skip says that a plug-in has nothing to do with a pod.
var Skip = Verdict{Code: Skipped}

// Refuse is a no that the end of other pods could change.
func Refuse(reason string, also ...string) Verdict {
	return Verdict{Code: Unschedulable, Reason: reason, Also: also}
}

// Never is a no that the end of other pods would not change.
func Never(reason string, also ...string) Verdict {
	return Verdict{Code: Unresolvable, Reason: reason, Also: also}
}

// Hold is a not yet.
func Hold(reason string) Verdict { return Verdict{Code: Wait, Reason: reason} }

// Fail is an error that says nothing about the pod. It must not be nil.
func Fail(err error) Verdict { return Verdict{Code: Failed, Reason: err.Error(), Err: err} }

// OK reports whether v is a yes.
func (v Verdict) OK() bool { return v.Code == Success }

// Refused reports whether v is a no.
func (v Verdict) Refused() bool { return v.Code == Unschedulable || v.Code == Unresolvable }

// Each calls f with each reason.
func (v Verdict) Each(f func(reason string)) {
	if v.Reason == "" {
		return
	}
	f(v.Reason)
	for _, r := range v.Also {
		f(r)
	}
}

// String returns v as text for logs and stories: "unschedulable: Too many pods, Insufficient cpu".
func (v Verdict) String() string {
	if v.Reason == "" {
		return v.Code.String()
	}
	return v.Code.String() + ": " + strings.Join(append([]string{v.Reason}, v.Also...), ", ")
}

// A Lack is a resource that a node lacks for a pod, in numbers.
type Lack struct {
	What  string // "cpu", "pods", "port 80/TCP", "skew of zone"
	Asked int64  // by the pod; CPU in thousandths, memory in bytes
	Free  int64  // what there is for it now
	Total int64  // what there would be if no other pod were there
}
