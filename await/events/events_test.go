package events_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await/events"
)

func TestConditionsOfAnyObject(t *testing.T) {
	entry := func(more map[string]any) any {
		m := map[string]any{"type": "Ready", "status": "False", "reason": "Why", "message": "two\nlines"}
		maps.Copy(m, more)
		return m
	}
	for name, c := range map[string]struct {
		list any
		want []events.Condition
	}{
		"none":                 {nil, nil},
		"no list":              {"Ready", nil},
		"entries of no kind":   {[]any{"Ready", 1, nil}, nil},
		"a number from JSON":   {[]any{entry(map[string]any{"observedGeneration": int64(3)})}, []events.Condition{{"Ready", "False", "Why", "two\nlines", 3}}},
		"a number from a hand": {[]any{entry(map[string]any{"observedGeneration": 3.0})}, []events.Condition{{"Ready", "False", "Why", "two\nlines", 3}}},
		"a text for a number":  {[]any{entry(map[string]any{"observedGeneration": "3"})}, []events.Condition{{"Ready", "False", "Why", "two\nlines", 0}}},
		"a number for a text":  {[]any{entry(map[string]any{"reason": 7})}, []events.Condition{{"Ready", "False", "", "two\nlines", 0}}},
	} {
		got := events.Conditions(map[string]any{"status": map[string]any{"conditions": c.list}})
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %#v, want %#v", name, got, c.want)
		}
	}
	c := events.Condition{Kind: "Ready", Status: "False", Reason: "Why", Message: "two\nlines"}
	if got, want := c.String(), "Ready=False: Why: two lines"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNewestNotesAreKept(t *testing.T) {
	event := func(name string, second int, reason string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Type: corev1.EventTypeWarning, Reason: reason,
			LastTimestamp: metav1.Unix(int64(second), 0),
		}
	}
	var notes []events.Note
	for i, second := range []int{5, 1, 4, 2, 3} { // as a list may have them
		notes = events.Add(notes, events.NoteOf(event(fmt.Sprint("e", i), second, "Failed"), false))
	}
	notes = events.Add(notes, events.NoteOf(event("e2", 6, "MissingClusterDNS"), true)) // it happened again
	var seen []int64
	for _, n := range notes {
		seen = append(seen, n.Seen.Unix())
	}
	if want := []int64{3, 5, 6}; !slices.Equal(seen, want) {
		t.Errorf("kept those of seconds %v, want %v", seen, want)
	}
	if n, some := events.Newest(notes); !some || n.Seen.Unix() != 5 {
		t.Errorf("got %v, %v, want the newest that holds anybody up, of second 5", n, some)
	}
	again := events.NoteOf(notes[2].Event("about"), true)
	if again.Name != "e2" || !again.Seen.Equal(time.Unix(6, 0)) || !again.Harmless() {
		t.Errorf("got %+v back from an event", again)
	}
}
