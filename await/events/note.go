package events

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MaxNotes is how many events are kept of one object: as many as a report
// tells.
const MaxNotes = 3

// A Note is what is kept of an event: ten thousand pods that no node has room for
// have as many events.
type Note struct {
	UID             types.UID // of the event, as are these
	Name, Namespace string

	Kind, About     string // of the object that it is about, and its name
	Reason, Message string // in one line
	From            string // who says so
	Normal          string // the event's type, or "" for a warning
	Seen            time.Time
	Count           int32
	Fresh           bool   // it came while we watched, or there is no saying
	Epoch           uint32 // of the list or watch that brought it; the caller's
}

// NoteOf returns the note of an event; fresh says that it came while we watched.
func NoteOf(e *corev1.Event, fresh bool) Note {
	n := Note{
		UID: e.UID, Kind: e.InvolvedObject.Kind, Reason: e.Reason, Message: Line(e.Message), From: cmp.Or(e.Source.Component, e.ReportingController),
		Name: e.Name, Namespace: e.Namespace, About: e.InvolvedObject.Name,
		Seen: LastSeen(e), Count: max(e.Count, 1), Fresh: fresh,
	}
	if e.Type != corev1.EventTypeWarning {
		n.Normal = e.Type
	}
	return n
}

// Event is the event that n was made from, as far as a report needs it.
func (n Note) Event(about types.UID) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Namespace: n.Namespace, UID: n.UID},
		InvolvedObject: corev1.ObjectReference{
			Kind: n.Kind, Namespace: n.Namespace, Name: n.About, UID: about,
		},
		Type: cmp.Or(n.Normal, corev1.EventTypeWarning), Reason: n.Reason, Message: n.Message, Count: n.Count,
		Source: corev1.EventSource{Component: n.From}, LastTimestamp: metav1.NewTime(n.Seen),
	}
}

// String is the note as a cause.
func (n Note) String() string { return Reason(n.Reason, n.Message) }

// Older orders notes by when they were made.
func Older(a, b Note) int { return cmp.Or(a.Seen.Compare(b.Seen), strings.Compare(a.Name, b.Name)) }

// Add adds an event to the notes of one object, oldest first, and lets the oldest go.
func Add(notes []Note, n Note) []Note {
	notes = slices.DeleteFunc(notes, func(o Note) bool { return o.UID == n.UID && o.Name == n.Name })
	i, _ := slices.BinarySearchFunc(notes, n, Older)
	notes = slices.Insert(notes, i, n)
	return notes[max(0, len(notes)-MaxNotes):]
}

// Harmless reports whether a warning is about something that holds nobody up.
func (n Note) Harmless() bool {
	return n.Normal != "" || n.Reason == "MissingClusterDNS" || n.Reason == "DNSConfigForming"
}

// Newest returns the newest warning that matters, if there is one.
func Newest(notes []Note) (Note, bool) {
	for _, n := range slices.Backward(notes) {
		if !n.Harmless() {
			return n, true
		}
	}
	return Note{}, false
}

// LastSeen is when an event last happened, by whichever of its times says so.
func LastSeen(e *corev1.Event) time.Time {
	seen := e.EventTime.Time
	for _, t := range []time.Time{e.CreationTimestamp.Time, e.FirstTimestamp.Time, e.LastTimestamp.Time} {
		if t.After(seen) {
			seen = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(seen) {
		seen = e.Series.LastObservedTime.Time
	}
	return seen
}
