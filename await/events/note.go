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

// MaxNotes is how many events are kept per object, which is how many a report shows.
const MaxNotes = 3

// A Note is the part of an event that is kept. It is small because ten thousand unschedulable pods have as many events.
type Note struct {
	UID             types.UID // of the event
	Name, Namespace string    // of the event

	Kind, About     string // kind and name of the involved object
	Reason, Message string // Message is one line
	From            string // the component that reported the event
	Normal          string // the event's type, or "" for a warning
	Seen            time.Time
	Count           int32
	Fresh           bool   // the event came from a watch, so it is not older than the wait
	Epoch           uint32 // number of the list in which the caller last saw the event
}

// NoteOf returns the note of an event. fresh reports whether the event came from a watch.
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

// Event returns the event that n was made from, with the fields that a report needs. about is the UID of its object.
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

// String returns the note as text for a cause.
func (n Note) String() string { return Reason(n.Reason, n.Message) }

// Older compares notes by the time at which the event was last seen.
func Older(a, b Note) int { return cmp.Or(a.Seen.Compare(b.Seen), strings.Compare(a.Name, b.Name)) }

// Add adds an event to the notes of one object, which are sorted by time, and drops the oldest beyond MaxNotes.
func Add(notes []Note, n Note) []Note {
	notes = slices.DeleteFunc(notes, func(o Note) bool { return o.UID == n.UID && o.Name == n.Name })
	i, _ := slices.BinarySearchFunc(notes, n, Older)
	notes = slices.Insert(notes, i, n)
	return notes[max(0, len(notes)-MaxNotes):]
}

// Harmless reports whether an event does not explain why an object is not ready. The event of a rollback is about a former
// template of a Deployment; the Deployment itself shows whether it is rolled back now.
func (n Note) Harmless() bool {
	return n.Normal != "" || n.Reason == "MissingClusterDNS" || n.Reason == "DNSConfigForming" || n.Reason == "RolledBack"
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

// LastSeen returns the latest of an event's times.
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
