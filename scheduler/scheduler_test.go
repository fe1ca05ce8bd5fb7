package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// scheduling runs a scheduler with the built-in plug-ins on a server of the given objects while f looks at
// it, in a bubble whose time is free.
func scheduling(t *testing.T, f func(t *testing.T, s *clienttest.Server), objs ...client.Object) {
	t.Helper()
	schedulingWith(t, scheduler.Options{Plugins: builtin.Default()}, f, objs...)
}

func schedulingWith(t *testing.T, o scheduler.Options, f func(t *testing.T, s *clienttest.Server), objs ...client.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, objs...)
		beside(t, s, o)
		f(t, s)
	})
}

// beside runs a scheduler until the test ends.
func beside(t *testing.T, s *clienttest.Server, o scheduler.Options) {
	t.Helper()
	o.Client = s
	sched, err := scheduler.New(o)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(ctx context.Context) {
		if err := sched.Run(ctx); err != nil {
			t.Errorf("Run = %v, want nil after a plain stop", err)
		}
	})
	t.Cleanup(g.Stop)
	<-sched.Ready()
	synctest.Wait()
}

// where returns the nodes of the pods, as in "web-1:a web-2:".
func where(t *testing.T, s *clienttest.Server) string {
	t.Helper()
	synctest.Wait()
	pods, _, err := client.Pods.List(t.Context(), s, "", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range pods {
		out = append(out, p.Name+":"+p.Spec.NodeName)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func expect(t *testing.T, s *clienttest.Server, want string) {
	t.Helper()
	if got := where(t, s); got != want {
		t.Errorf("pods are at %q, want %q", got, want)
	}
}

// events returns the events of a pod, as in "Scheduled: Successfully …".
func events(t *testing.T, s *clienttest.Server, pod string) []string {
	t.Helper()
	synctest.Wait()
	list, _, err := client.Events.List(t.Context(), s, "", metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		if e.InvolvedObject.Name == pod {
			out = append(out, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message))
		}
	}
	return out
}

func node(words ...string) *corev1.Node { return plugintest.Node(words...) }
func pod(words ...string) *corev1.Pod   { return plugintest.Pod(words...) }

func TestPodsAreBoundAsTheyCome(t *testing.T) {
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		expect(t, s, "old:a")
		s.Set(t, pod("new"))
		expect(t, s, "new:b old:a")
		if got := events(t, s, "new"); !slices.Equal(got, []string{"Normal Scheduled: Successfully assigned default/new to b"}) {
			t.Errorf("events: %q", got)
		}
	}, node("a"), node("b"), pod("old"))
}

func TestARefusalIsToldOnceAndWaitsForHelp(t *testing.T) {
	big := pod("big", "cpu=4")
	big.Generation = 2
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		expect(t, s, "big:")
		why := "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
		if got := events(t, s, "big"); !slices.Equal(got, []string{"Warning FailedScheduling: " + why}) {
			t.Errorf("events: %q", got)
		}
		p, err := client.Pods.Get(t.Context(), s, "default", "big")
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Status.Conditions) != 1 || p.Status.Conditions[0].Type != corev1.PodScheduled || p.Status.Conditions[0].Status != corev1.ConditionFalse ||
			p.Status.Conditions[0].Reason != "Unschedulable" || p.Status.Conditions[0].Message != why || p.Status.Conditions[0].LastTransitionTime.IsZero() ||
			p.Status.Conditions[0].ObservedGeneration != 2 {
			t.Errorf("conditions: %+v", p.Status.Conditions)
		}
		// Time alone changes nothing, nor does a heartbeat.
		s.Writes()
		time.Sleep(24 * time.Hour)
		beat := node("small", "cpu=1")
		beat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
		s.Set(t, beat)
		synctest.Wait()
		if got := s.Writes(); len(got) != 0 {
			t.Errorf("writes in an idle day: %v", got)
		}
		s.Set(t, node("cordoned"))
		expect(t, s, "big:cordoned")
	}, node("small", "cpu=1"), node("cordoned", "cordoned"), big)
}

func TestTheEndOfAPodMakesRoom(t *testing.T) {
	done := pod("done", "cpu=1", "on=a")
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		expect(t, s, "done:a waits-1: waits-2:")
		ended := done.DeepCopy()
		ended.Status.Phase = corev1.PodSucceeded
		s.Set(t, ended)
		expect(t, s, "done:a waits-1:a waits-2:")
		s.Remove(t, pod("waits-1"))
		expect(t, s, "done:a waits-2:a")
	}, node("a", "cpu=1"), done, pod("waits-1", "cpu=1"), pod("waits-2", "cpu=1"))
}

func TestMoreImportantPodsGoFirst(t *testing.T) {
	important := pod("important", "cpu=1")
	important.Spec.Priority = new(int32(1000))
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		expect(t, s, "first: important:")
		s.Set(t, node("a", "cpu=1"))
		expect(t, s, "first: important:a")
	}, pod("first", "cpu=1"), important)
}

func TestABoundPodCountsBeforeTheWatchSaysSo(t *testing.T) {
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		hold := make(chan struct{})
		s.Intercept(func(r clienttest.Request) error {
			if r.Subresource == "binding" {
				<-hold
			}
			return nil
		})
		s.Set(t, pod("one", "cpu=600m"), pod("two", "cpu=600m"))
		synctest.Wait()
		if got := events(t, s, "two"); len(got) != 1 || !strings.Contains(got[0], "1 Insufficient cpu") {
			t.Errorf("while one is being bound, two was told %q", got)
		}
		close(hold)
		expect(t, s, "one:a two:")
	}, node("a", "cpu=1"))
}

func TestAFailedBindingIsTriedAgainAndFreesThePlace(t *testing.T) {
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		failures := 0
		s.Intercept(func(r clienttest.Request) error {
			if r.Subresource == "binding" && r.Name == "one" && failures < 3 {
				failures++
				return errors.New("connection refused")
			}
			return nil
		})
		s.Set(t, pod("one", "cpu=600m"))
		expect(t, s, "one:")
		if got := events(t, s, "one"); len(got) != 1 || !strings.Contains(got[0], "FailedScheduling: binding default/one to a: connection refused") {
			t.Errorf("events: %q", got)
		}
		s.Set(t, pod("two", "cpu=400m"))
		expect(t, s, "one: two:a")
		time.Sleep(time.Minute)
		expect(t, s, "one:a two:a")
		if failures != 3 {
			t.Errorf("bound after %d failures, want 3", failures)
		}
	}, node("a", "cpu=1"))
}

func TestALostRaceIsNoTrouble(t *testing.T) {
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		raced := false
		s.Intercept(func(r clienttest.Request) error {
			if r.Subresource == "binding" && !raced {
				raced = true
				return apierrors.NewConflict(client.Pods.GroupResource(), r.Name, errors.New("already assigned"))
			}
			return nil
		})
		s.Set(t, pod("one", "cpu=600m"))
		synctest.Wait()
		s.Set(t, pod("one", "cpu=600m", "on=b"))
		expect(t, s, "one:b")
		// And what it did not take is free.
		s.Set(t, pod("two", "cpu=600m"))
		expect(t, s, "one:b two:a")
		if got := events(t, s, "one"); len(got) != 0 {
			t.Errorf("events: %q", got)
		}
	}, node("a", "cpu=1"))
}

func TestSomePodsAreLeftAlone(t *testing.T) {
	foreign, gated, gone, ended := pod("foreign"), pod("gated"), pod("gone"), pod("ended")
	foreign.Spec.SchedulerName = "other"
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}}
	gone.DeletionTimestamp, gone.Finalizers = new(metav1.Now()), []string{"x/y"}
	ended.Status.Phase = corev1.PodFailed
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		expect(t, s, "ended: foreign: gated: gone:")
		free := gated.DeepCopy()
		free.Spec.SchedulingGates = nil
		s.Set(t, free)
		expect(t, s, "ended: foreign: gated:a gone:")
	}, node("a"), foreign, gated, gone, ended)
}

func TestAChangedPodIsLookedAtAgain(t *testing.T) {
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		expect(t, s, "p:")
		s.Set(t, pod("p", "tolerate=full"))
		expect(t, s, "p:a")
	}, node("a", "taint=full=:NoSchedule"), pod("p"))
}

func TestManyPodsFillManyNodesExactly(t *testing.T) {
	var objs []client.Object
	for i := range 20 {
		objs = append(objs, node(fmt.Sprintf("n%02d", i), "cpu=1"))
	}
	for i := range 210 {
		objs = append(objs, pod(fmt.Sprintf("p%03d", i), "cpu=100m"))
	}
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		count := map[string]int{}
		for w := range strings.FieldsSeq(where(t, s)) {
			_, n, _ := strings.Cut(w, ":")
			count[n]++
		}
		for n, pods := range count {
			if pods != 10 {
				t.Errorf("%d pods are at %q, want 10", pods, n)
			}
		}
	}, objs...)
}

func TestNewSaysEverythingThatIsWrong(t *testing.T) {
	_, err := scheduler.New(scheduler.Options{Client: &clienttest.Server{}, Plugins: plugin.Set{
		Entries: []plugin.Entry{{Plugin: builtin.NodeName{}}, {Plugin: builtin.NodeName{}}, {Plugin: builtin.ImageLocality{}, Weight: -1}},
	}})
	for _, want := range []string{`plug-in "NodeName" is listed twice`, `plug-in "ImageLocality" has weight -1`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want an error that says %q", err, want)
		}
	}
	if _, err := scheduler.New(scheduler.Options{}); err == nil {
		t.Error("New took no client")
	}
}
