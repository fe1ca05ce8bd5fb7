package await

import (
	"cmp"
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
	// Certain failures stay until somebody changes the object: a failed Job, an
	// image name that can't be parsed.
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

// worse orders verdicts by how much they hold up a set: certain failures first,
// then likely ones, then whatever has a cause.
func worse(a, b Verdict) int { return severity(b) - severity(a) }

func severity(v Verdict) int {
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

// A View is everything that a verdict is made from. [Judge] only reads it.
type View struct {
	// Object is the object itself, of its Go type or unstructured; nil when
	// there is none.
	Object client.Object

	Pods     []*corev1.Pod                // the pods that it controls
	Slices   []*discoveryv1.EndpointSlice // the endpoints of a Service
	Warnings []*corev1.Event              // warnings about it and its pods
}

// warning returns the newest warning about the object with this UID, or "".
func (v View) warning(of client.Object) string {
	var newest *corev1.Event
	for _, e := range v.Warnings {
		if e.InvolvedObject.UID != of.GetUID() || harmless(e.Reason) {
			continue
		}
		if newest == nil || cmp.Or(lastSeen(e).Compare(lastSeen(newest)), strings.Compare(e.Name, newest.Name)) > 0 {
			newest = e
		}
	}
	if newest == nil {
		return ""
	}
	return newest.Reason + ": " + oneLine(newest.Message)
}

// harmless reports whether a warning is about something that holds nobody up.
func harmless(reason string) bool {
	return reason == "MissingClusterDNS" || reason == "DNSConfigForming"
}

// oneLine makes a message that came from elsewhere fit into a line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
