package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/run"
)

// record runs a recorder while f uses it and returns the events that then stand.
func record(t *testing.T, f func(r *client.Recorder, s *clienttest.Server)) []*corev1.Event {
	s := clienttest.New(t)
	r := client.NewRecorder(s, "tester", "", nil)
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(ctx context.Context) { _ = r.Run(ctx) })
	f(r, s)
	g.Stop()
	return clienttest.All(s, client.Events, "")
}

func TestARepeatedEventIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}}
		events := record(t, func(r *client.Recorder, _ *clienttest.Server) {
			for range 3 {
				r.Event(pod, corev1.EventTypeWarning, "Failed", "attempt on %s", "x")
				time.Sleep(time.Minute)
			}
			r.Event(pod, corev1.EventTypeWarning, "Failed", "attempt on %s", "y")
		})
		if len(events) != 2 {
			t.Fatalf("%d events, want 2", len(events))
		}
		e := events[0]
		if e.Count != 3 || e.LastTimestamp.Sub(e.FirstTimestamp.Time) != 2*time.Minute {
			t.Errorf("count %d over %v, want 3 over 2m", e.Count, e.LastTimestamp.Sub(e.FirstTimestamp.Time))
		}
		if e.InvolvedObject.Kind != "Pod" || e.InvolvedObject.APIVersion != "v1" || e.Source.Component != "tester" || e.Message != "attempt on x" {
			t.Errorf("event = %+v", e)
		}
	})
}

func TestAMessageIsUTF8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}}
		events := record(t, func(r *client.Recorder, _ *clienttest.Server) {
			r.Event(pod, corev1.EventTypeWarning, "Unhealthy", "Readiness probe failed: %s", "\xffno")
		})
		if want := "Readiness probe failed: \ufffdno"; len(events) != 1 || events[0].Message != want {
			t.Errorf("events = %v, want the message %q", events, want)
		}
	})
}

func TestSimilarEventsAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}}
		events := record(t, func(r *client.Recorder, _ *clienttest.Server) {
			for i := range 100 {
				r.Event(pod, corev1.EventTypeNormal, "Seen", "number %d", i)
			}
		})
		if len(events) != 11 {
			t.Fatalf("%d events, want 10 and a combined one", len(events))
		}
		last := events[10]
		if !strings.HasPrefix(last.Message, "(combined from similar events): ") || last.Count != 15 {
			t.Errorf("the last is %q ×%d, want a combined one ×15: 25 events may come at once", last.Message, last.Count)
		}
	})
}

func TestAnEventThatWentAwayIsToldAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		events := record(t, func(r *client.Recorder, s *clienttest.Server) {
			r.Event(node, corev1.EventTypeNormal, "Ready", "it is")
			synctest.Wait()
			s.Remove(t, clienttest.All(s, client.Events, "default")[0])
			r.Event(node, corev1.EventTypeNormal, "Ready", "it is")
		})
		if len(events) != 1 || events[0].Count != 2 {
			t.Errorf("events = %v, want one with count 2", events)
		}
	})
}

func TestRecordingNeverBlocks(t *testing.T) {
	s := clienttest.New(t)
	r := client.NewRecorder(s, "tester", "", nil) // it does not run
	for i := range 2000 {
		r.Event(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}}, "Normal", "Seen", "yes")
	}
}
