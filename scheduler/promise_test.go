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

// TestOldStatusRestoresNoNomination takes back the nomination of a pod because a more important pod needs the
// capacity. Before the server has that change, the watch reports the pod for another reason, with a status that still names
// the node. If the scheduler believed that status, it would keep the capacity reserved for ever, because the next status, which
// names no node, is then nothing new.
func TestOldStatusRestoresNoNomination(t *testing.T) {
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

// TestNominationsBeforeStart has pods with a nominated node in their status when the scheduler starts, and later another
// client removes it from one of them. The scheduler follows both.
func TestNominationsBeforeStart(t *testing.T) {
	promised := pod("promised", "cpu=6", "priority=5")
	promised.Status.NominatedNodeName = "a"
	promised.Spec.PreemptionPolicy = new(corev1.PreemptNever) // or it would be nominated again
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("small", "cpu=4"))
		time.Sleep(time.Hour)
		expect(t, s, "old:a promised: small:") // the capacity is free, and nominated
		back := clienttest.Find(s, client.Pods, "default", "promised").DeepCopy()
		back.Status.NominatedNodeName = ""
		s.Set(t, back)
		time.Sleep(time.Minute)
		expect(t, s, "old:a promised: small:a")
	}, node("a", "cpu=8"), dying("old", "cpu=4", "on=a"), promised)
}

// TestNominationThatFails has a node that does not fit the pod any more after the victims have ended. The nomination is
// taken back, and other pods get the capacity.
func TestNominationThatFails(t *testing.T) {
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("high", "cpu=6", "priority=10"))
		if at := promisedTo(t, s, "high"); at != "a" {
			t.Fatalf("high is promised room on %q, want a", at)
		}
		s.Set(t, pod("large", "cpu=8", "tolerate=node.kubernetes.io/unschedulable"))
		expect(t, s, "high: large: old:a")
		s.Set(t, node("a", "cpu=8", "cordoned"))
		synctest.Wait() // or the watch may report the end of old first
		s.Remove(t, pod("old"))
		time.Sleep(time.Minute)
		if at := promisedTo(t, s, "high"); at != "" {
			t.Errorf("high is promised room on %q, want none", at)
		}
		expect(t, s, "high: large:a")
	}, node("a", "cpu=8"), dying("old", "cpu=4", "on=a"))
}
