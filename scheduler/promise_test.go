package scheduler_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

// dying returns a pod on a node that ends when a test says so.
func dying(words ...string) *corev1.Pod {
	p := pod(words...)
	p.Finalizers = []string{"example.org/slow"}
	return p
}

func promisedTo(t *testing.T, s *clienttest.Server, name string) string {
	t.Helper()
	synctest.Wait()
	return clienttest.Find(s, client.Pods, "default", name).Status.NominatedNodeName
}

// TestAnOldStatusDoesNotBringAPromiseBack has a pod's promise taken back, since one that is more important has the room.
// Before the server hears of that, the watch tells of the pod again, for another change, and its status still names
// the node. Whoever believed that would keep the room for ever: what the watch tells next, that the status names no
// node, takes nothing back.
func TestAnOldStatusDoesNotBringAPromiseBack(t *testing.T) {
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("mid", "cpu=6", "priority=5"))
		if at := promisedTo(t, s, "mid"); at != "a" {
			t.Fatalf("mid is promised room on %q, want a", at)
		}
		hold := make(chan struct{})
		s.Intercept(func(r clienttest.Request) error {
			if r.Verb == "patch" && r.Name == "mid" && bytes.Contains(r.Patch, []byte(`"nominatedNodeName"`)) {
				<-hold
			}
			return nil
		})
		s.Set(t, pod("high", "cpu=6", "priority=10"))
		if at := promisedTo(t, s, "high"); at != "a" {
			t.Fatalf("high is promised room on %q, want a", at)
		}
		s.Remove(t, pod("old"))
		expect(t, s, "high:a mid:")
		again := clienttest.Find(s, client.Pods, "default", "mid").DeepCopy()
		if again.Status.NominatedNodeName != "a" {
			t.Fatal("the server has heard already that mid is promised nothing: this tests nothing")
		}
		again.Annotations = map[string]string{"changed": "yes"}
		s.Set(t, again)
		synctest.Wait()
		close(hold)
		if at := promisedTo(t, s, "mid"); at != "" {
			t.Fatalf("mid is promised room on %q, want none", at)
		}
		// High takes 6 of 8 CPUs. There is room for small.
		s.Set(t, pod("small", "cpu=2"))
		time.Sleep(time.Hour)
		expect(t, s, "high:a mid: small:a")
	}, node("a", "cpu=8"), dying("old", "cpu=8", "on=a"))
}

// TestPromisesOfAnEarlierLife has the status of pods name a node when the scheduler starts, and later somebody
// else take that back: both are heeded.
func TestPromisesOfAnEarlierLife(t *testing.T) {
	promised := pod("promised", "cpu=6", "priority=5")
	promised.Status.NominatedNodeName = "a"
	promised.Spec.PreemptionPolicy = new(corev1.PreemptNever) // or it would get the room again
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("small", "cpu=4"))
		time.Sleep(time.Hour)
		expect(t, s, "old:a promised: small:") // the room is free, and promised
		back := clienttest.Find(s, client.Pods, "default", "promised").DeepCopy()
		back.Status.NominatedNodeName = ""
		s.Set(t, back)
		time.Sleep(time.Minute)
		expect(t, s, "old:a promised: small:a")
	}, node("a", "cpu=8"), dying("old", "cpu=4", "on=a"), promised)
}

// TestAPromiseThatCannotBeKept is taken back when room was made and the node takes the pod no longer; others have the room.
func TestAPromiseThatCannotBeKept(t *testing.T) {
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("high", "cpu=6", "priority=10"))
		if at := promisedTo(t, s, "high"); at != "a" {
			t.Fatalf("high is promised room on %q, want a", at)
		}
		s.Set(t, pod("large", "cpu=8", "tolerate=node.kubernetes.io/unschedulable"))
		expect(t, s, "high: large: old:a")
		s.Set(t, node("a", "cpu=8", "cordoned"))
		synctest.Wait() // or the end of old may be heard of first
		s.Remove(t, pod("old"))
		time.Sleep(time.Minute)
		if at := promisedTo(t, s, "high"); at != "" {
			t.Errorf("high is promised room on %q, want none", at)
		}
		expect(t, s, "high: large:a")
	}, node("a", "cpu=8"), dying("old", "cpu=4", "on=a"))
}
