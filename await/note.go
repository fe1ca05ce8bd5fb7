package await

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxNotes is how many events are kept of one object: as many as an [Outcome]
// tells.
const maxNotes = 3

// A note is what is kept of an event: ten thousand pods that no node has room for
// have as many events.
type note struct {
	uid                            types.UID // of the event
	kind, reason, message, from    string
	name, namespace, about, normal string
	seen                           time.Time
	count                          int32
	fresh                          bool // it came while we watched, or there is no saying
	epoch                          uint32
}

func noteOf(e *corev1.Event, fresh bool) note {
	n := note{
		uid: e.UID, kind: e.InvolvedObject.Kind, reason: e.Reason, message: oneLine(e.Message), from: cmp.Or(e.Source.Component, e.ReportingController),
		name: e.Name, namespace: e.Namespace, about: e.InvolvedObject.Name,
		seen: lastSeen(e), count: max(e.Count, 1), fresh: fresh,
	}
	if e.Type != corev1.EventTypeWarning {
		n.normal = e.Type
	}
	return n
}

// event is the event that n was made from, as far as a report needs it.
func (n note) event(about types.UID) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Namespace: n.namespace, UID: n.uid},
		InvolvedObject: corev1.ObjectReference{
			Kind: n.kind, Namespace: n.namespace, Name: n.about, UID: about,
		},
		Type: cmp.Or(n.normal, corev1.EventTypeWarning), Reason: n.reason, Message: n.message, Count: n.count,
		Source: corev1.EventSource{Component: n.from}, LastTimestamp: metav1.NewTime(n.seen),
	}
}

func (n note) text() string { return reason(n.reason, n.message) }

// older orders notes by when they were made.
func older(a, b note) int { return cmp.Or(a.seen.Compare(b.seen), strings.Compare(a.name, b.name)) }

// noted adds an event to the notes of one object, oldest first, and lets the oldest go.
func noted(notes []note, n note) []note {
	notes = slices.DeleteFunc(notes, func(o note) bool { return o.uid == n.uid && o.name == n.name })
	i, _ := slices.BinarySearchFunc(notes, n, older)
	notes = slices.Insert(notes, i, n)
	return notes[max(0, len(notes)-maxNotes):]
}

// harmless reports whether a warning is about something that holds nobody up.
func (n note) harmless() bool {
	return n.normal != "" || n.reason == "MissingClusterDNS" || n.reason == "DNSConfigForming"
}

// newest returns the newest warning that matters, if there is one.
func newest(notes []note) (note, bool) {
	for _, n := range slices.Backward(notes) {
		if !n.harmless() {
			return n, true
		}
	}
	return note{}, false
}

// lastSeen is when an event last happened, by whichever of its times says so.
func lastSeen(e *corev1.Event) time.Time {
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
