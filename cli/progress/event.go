package progress

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/await/events"
)

// The types of an [Event]. The comments list the fields of each type; Time, Elapsed and Type are always set.
const (
	// TypeWritten: the command wrote an object. Object, Operation.
	TypeWritten = "written"
	// TypeStep: the command printed a line about its work. Line.
	TypeStep = "step"
	// TypeProgress: the verdict on an object has changed. Object, State, and
	// Certainty, Cause, Absent and Parts where they apply.
	TypeProgress = "progress"
	// TypeLost: the server cannot be reached; the wait continues. Error.
	TypeLost = "lost"
	// TypeBack: the server can be reached again.
	TypeBack = "back"
	// TypeDropped: an object no longer counts, because the selector does not match it any
	// more or it does not exist. Object.
	TypeDropped = "dropped"
	// TypeLog: a container wrote a line. Object (the pod), Container, Line, and Stream if
	// the server separates the streams.
	TypeLog = "log"
	// TypeNote: an error that does not end the wait, such as the refusal of another object. Error.
	TypeNote = "note"
	// TypeResult: the wait has ended. It is the last line. Result, ExitCode, Error,
	// and Objects with the status of each, unfinished ones with their events.
	TypeResult = "result"
)

// The values of Event.Result.
const (
	ResultDone           = "done"
	ResultFailed         = "failed"
	ResultRolledBack     = "rolled-back"
	ResultTimedOut       = "timed-out"
	ResultGone           = "gone"
	ResultNothingMatched = "nothing-matched"
	ResultInterrupted    = "interrupted"
	ResultError          = "error"
)

// An Event is a line of the JSON stream for programs. Names and meanings of fields do not
// change; fields and types may be added.
type Event struct {
	Time    time.Time `json:"time"`           // UTC
	Elapsed float64   `json:"elapsedSeconds"` // since the wait began
	Type    string    `json:"type"`

	Object    *Object `json:"object,omitempty"`
	Operation string  `json:"operation,omitempty"` // created, configured, scaled, deleted, …
	Container string  `json:"container,omitempty"`
	Stream    string  `json:"stream,omitempty"` // stdout or stderr
	Line      string  `json:"line,omitempty"`   // without its end
	State

	Result   string   `json:"result,omitempty"`
	ExitCode *int     `json:"exitCode,omitempty"`
	Error    string   `json:"error,omitempty"`
	Objects  []Status `json:"objects,omitempty"`
}

// An Object identifies an object.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Resource   string `json:"resource,omitempty"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"` // empty if a selector matches nothing
	UID        string `json:"uid,omitempty"`
}

// A State is a verdict.
type State struct {
	State     string `json:"state,omitempty"`     // waiting, failed, done
	Certainty string `json:"certainty,omitempty"` // of failed: likely, certain
	Cause     string `json:"cause,omitempty"`     // text for people
	Absent    bool   `json:"absent,omitempty"`    // it does not exist
	Parts     []Part `json:"parts,omitempty"`     // the parts that hold it up, worst first
	More      int    `json:"moreParts,omitempty"` // the number of further parts
}

// A Part is an object that holds up another.
type Part struct {
	Object *Object `json:"object"`
	State
}

// A Status is the status of an object at the end of a wait.
type Status struct {
	Object *Object `json:"object"`
	State
	Events []Happening `json:"events,omitempty"` // the last three, oldest first
	See    string      `json:"see,omitempty"`    // the command that shows more
}

// A Happening is an Event object of the cluster.
type Happening struct {
	Object  *Object   `json:"object"` // the involved object
	Time    time.Time `json:"time"`   // of the last time
	Type    string    `json:"type"`   // Normal, Warning
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int32     `json:"count,omitempty"`
}

// ObjectOf converts a Ref.
func ObjectOf(r await.Ref) *Object {
	return &Object{
		APIVersion: r.Resource.GroupVersion().String(), Resource: r.Resource.Resource, Kind: r.Kind,
		Namespace: r.Namespace, Name: r.Name, UID: string(r.UID),
	}
}

// EventOf returns the event for a change.
func EventOf(p await.Progress) Event {
	switch p := p.(type) {
	case await.ConnectionLost:
		return Event{Type: TypeLost, Error: p.Err.Error()}
	case await.ConnectionRestored:
		return Event{Type: TypeBack}
	case await.Dropped:
		return Event{Type: TypeDropped, Object: ObjectOf(p.Object), State: State{Absent: p.Absent}}
	case await.Status:
		return Event{Type: TypeProgress, Object: ObjectOf(p.Object), State: stateOf(p)}
	}
	return Event{}
}

func stateOf(p await.Status) State {
	s := verdictOf(p.Verdict)
	s.Absent = p.Absent
	s.Parts, s.More = partsOf(p.Parts), p.More
	return s
}

func verdictOf(v await.Verdict) State {
	s := State{State: v.State.String(), Cause: v.Cause}
	if v.State == await.Failed {
		s.Certainty = v.Certainty.String()
	}
	return s
}

func partsOf(parts []await.Part) []Part {
	var all []Part
	for _, p := range parts {
		s := verdictOf(p.Verdict)
		s.Parts, s.More = partsOf(p.Parts), p.More
		all = append(all, Part{Object: ObjectOf(p.Object), State: s})
	}
	return all
}

// StatusOf returns the status of an object at the end of a wait.
func StatusOf(p await.Status, hint Hint) Status {
	s := Status{Object: ObjectOf(p.Object), State: stateOf(p)}
	if p.Verdict.State == await.Done {
		return s
	}
	for _, e := range p.Events {
		s.Events = append(s.Events, happeningOf(e))
	}
	s.See = More(p, hint)
	return s
}

func happeningOf(e *corev1.Event) Happening {
	o := e.InvolvedObject
	return Happening{
		Object: &Object{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: string(o.UID)},
		Time:   events.LastSeen(e).UTC(), Type: e.Type, Reason: e.Reason, Message: e.Message, Count: times(e),
	}
}

// ResultOf returns the Event.Result for the result of a wait.
func ResultOf(r await.Result) string {
	switch r {
	case await.AllDone:
		return ResultDone
	case await.SomeFailed:
		return ResultFailed
	case await.TimedOut:
		return ResultTimedOut
	case await.Vanished:
		return ResultGone
	case await.NothingMatched:
		return ResultNothingMatched
	}
	return ResultError
}
