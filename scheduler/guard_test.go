package scheduler_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// trouble is a plug-in at all points that the keeper asks itself. What happens to pods with the label bad is up to the test.
type trouble struct {
	at   string // the point at which there is trouble
	make atomic.Pointer[func()]

	asked atomic.Int64 // about bad pods there
}

func (tr *trouble) with(at string, pods ...*plugin.Pod) {
	if tr.at != at {
		return
	}
	for _, p := range pods {
		if p.Labels["bad"] != "" {
			tr.asked.Add(1)
			if f := tr.make.Load(); f != nil {
				(*f)()
			}
			return
		}
	}
}

func (*trouble) Name() string { return "Trouble" }
func (tr *trouble) Less(a, b *plugin.Queued) bool {
	tr.with("Less", a.Pod, b.Pod)
	_ = a.Attempts + b.Attempts // the race detector says whether somebody writes that now
	return a.Priority() > b.Priority()
}

func (tr *trouble) PreEnqueue(pod *plugin.Pod) plugin.Verdict {
	tr.with("PreEnqueue", pod)
	return plugin.Verdict{}
}

func (tr *trouble) Sign(pod *plugin.Pod) string {
	tr.with("Sign", pod)
	return pod.Annotations["wants"]
}

// Filter is there so that there is something to be signed, and to be helped.
func (*trouble) Filter(pod *plugin.Pod, n *plugin.Node) plugin.Verdict {
	if pod.Labels["slow"] != "" {
		time.Sleep(100 * time.Millisecond) // so that others come in the meantime
	}
	if want := pod.Annotations["wants"]; want != "" && n.Labels["kind"] != want {
		return plugin.Refuse("node(s) didn't have what it wants")
	}
	return plugin.Verdict{}
}

func (tr *trouble) Hints() []plugin.Hint {
	return []plugin.Hint{{Resource: client.Nodes.GroupVersionResource, Action: plugin.NodeLabels, Helps: func(pod *plugin.Pod, _ plugin.Change) bool {
		tr.with("Helps", pod)
		return false
	}}}
}

func troubled(tr *trouble) scheduler.Options {
	return scheduler.Options{Plugins: builtin.Default().Without("PrioritySort").With(plugin.Entry{Plugin: tr}), Patience: time.Second}
}

// hang has the plug-in not come back until the test ends.
func (tr *trouble) hang() (end func()) {
	forever := make(chan struct{})
	tr.make.Store(new(func() { <-forever }))
	return func() {
		tr.make.Store(nil)
		close(forever) // of the bubble, which could not end while somebody waits for it
		synctest.Wait()
	}
}

// TestWhatTheKeeperAsksMayStall has a plug-in hang when it is asked about a bad pod. The others go on after two Patiences
// at most, what was decided stays decided, and the bad pod has its turn, too, if anything can be said of it.
func TestWhatTheKeeperAsksMayStall(t *testing.T) {
	for _, point := range []string{"Less", "PreEnqueue", "Sign"} {
		t.Run(point, func(t *testing.T) {
			tr := &trouble{at: point}
			schedulingWith(t, troubled(tr), func(t *testing.T, s *clienttest.Server) {
				defer tr.hang()()
				hold := make(chan struct{})
				s.Intercept(func(r clienttest.Request) error {
					if r.Subresource == "binding" && r.Name == "pending" {
						<-hold
					}
					return nil
				})
				gated := pod("gated")
				gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}}
				s.Set(t, gated, pod("pending", "cpu=2", "label=slow=yes"))
				synctest.Wait()
				s.Set(t, pod("bad", "label=bad=yes", "cpu=1", "priority=10"), pod("other", "cpu=1"))
				time.Sleep(200 * time.Millisecond)
				if synctest.Wait(); tr.asked.Load() == 0 {
					t.Fatalf("%s is not asked", point)
				}
				time.Sleep(3 * time.Second)
				s.Set(t, pod("large", "cpu=3")) // of 4 CPUs 2 are decided about, and bound by nobody yet
				time.Sleep(3 * time.Second)
				bad := "bad:a"
				if point == "PreEnqueue" {
					bad = "bad:"
				}
				expect(t, s, bad+" gated: large: other:a pending:")
				close(hold)
				expect(t, s, bad+" gated: large: other:a pending:a")
				if told := events(t, s, "bad"); point == "PreEnqueue" && (len(told) == 0 || !strings.Contains(told[0], `FailedScheduling: plug-in "Trouble" has not answered within 1s`)) {
					t.Errorf("events: %q", told)
				}
				asked := tr.asked.Load()
				tr.make.Store(nil)
				time.Sleep(time.Minute)
				expect(t, s, "bad:a gated: large: other:a pending:a")
				if again := tr.asked.Load(); point != "PreEnqueue" && again > asked {
					t.Errorf("%s was asked %d times more", point, again-asked)
				}
				gated = gated.DeepCopy()
				gated.Spec.SchedulingGates = nil
				s.Set(t, gated)
				s.Remove(t, pod("bad"), pod("other"), pod("pending"))
				expect(t, s, "gated:a large:a")
			}, node("a", "cpu=4"))
		})
	}
}

// TestAHintThatStalls is given up, and anything may help those that its plug-in refuses.
func TestAHintThatStalls(t *testing.T) {
	tr := &trouble{at: "Helps"}
	schedulingWith(t, troubled(tr), func(t *testing.T, s *clienttest.Server) {
		defer tr.hang()()
		bad := pod("bad", "label=bad=yes")
		bad.Annotations = map[string]string{"wants": "gpu"}
		s.Set(t, bad)
		expect(t, s, "bad:")
		s.Set(t, node("a", "cpu=4", "some=label"), pod("good"))
		if synctest.Wait(); tr.asked.Load() != 1 {
			t.Fatalf("the hint was asked %d times, want once", tr.asked.Load())
		}
		time.Sleep(3 * time.Second)
		expect(t, s, "bad: good:a")
		s.Set(t, node("a", "cpu=4", "kind=gpu")) // of which the hint would say that it helps nobody
		time.Sleep(time.Minute)
		expect(t, s, "bad:a good:a")
		if got := tr.asked.Load(); got != 1 {
			t.Errorf("the hint was asked %d times, want once", got)
		}
	}, node("a", "cpu=4"))
}

// TestLessThatAlwaysStalls is asked no more the third time: pods go in the order in which they come.
func TestLessThatAlwaysStalls(t *testing.T) {
	tr := &trouble{at: "Less"}
	schedulingWith(t, troubled(tr), func(t *testing.T, s *clienttest.Server) {
		defer tr.hang()()
		for i := range 20 {
			s.Set(t, pod(fmt.Sprintf("p%02d", i), "label=bad=yes", "cpu=1"))
		}
		time.Sleep(10 * time.Second)
		want := ""
		for i := range 20 {
			want += fmt.Sprintf("p%02d:", i)
			if i < 10 {
				want += "a"
			}
			want += " "
		}
		expect(t, s, strings.TrimSpace(want))
		if got := tr.asked.Load(); got != 3 {
			t.Errorf("Less was asked %d times, want 3", got)
		}
	}, node("a", "cpu=10"))
}

// TestAStallWhenTheSchedulerStops does not keep it from stopping.
func TestAStallWhenTheSchedulerStops(t *testing.T) {
	tr := &trouble{at: "PreEnqueue"}
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, node("a"))
		defer tr.hang()()
		o := troubled(tr)
		o.Client = s
		sched, err := scheduler.New(o)
		if err != nil {
			t.Fatal(err)
		}
		g := run.NewGroup(t.Context(), 0)
		g.Go(func(ctx context.Context) {
			if err := sched.Run(ctx); err != nil {
				t.Errorf("Run = %v, want nil after a plain stop", err)
			}
		})
		<-sched.Ready()
		s.Set(t, pod("bad", "label=bad=yes"))
		synctest.Wait()
		g.Stop()
	})
}

// TestWhatTheKeeperAsksMayPanic costs the bad pod what a stall does, at once.
func TestWhatTheKeeperAsksMayPanic(t *testing.T) {
	for _, point := range []string{"Less", "PreEnqueue", "Sign", "Helps"} {
		t.Run(point, func(t *testing.T) {
			tr := &trouble{at: point}
			tr.make.Store(new(func() { panic("oh no") }))
			schedulingWith(t, troubled(tr), func(t *testing.T, s *clienttest.Server) {
				bad, wants := pod("bad", "label=bad=yes", "cpu=1", "priority=10"), ""
				if point == "Helps" {
					wants = "gpu"
				}
				bad.Annotations = map[string]string{"wants": wants}
				s.Set(t, pod("slow", "label=slow=yes"))
				synctest.Wait()
				s.Set(t, bad, pod("other", "cpu=1"))
				time.Sleep(200 * time.Millisecond)
				switch point {
				case "PreEnqueue":
					expect(t, s, "bad: other:a slow:a")
					if told := events(t, s, "bad"); len(told) != 1 || told[0] != `Warning FailedScheduling: plug-in "Trouble" panicked: oh no` {
						t.Errorf("events: %q", told)
					}
					tr.make.Store(nil)
					time.Sleep(time.Minute)
				case "Helps":
					expect(t, s, "bad: other:a slow:a")
					s.Set(t, node("a", "cpu=4", "kind=gpu"))
				}
				if expect(t, s, "bad:a other:a slow:a"); tr.asked.Load() == 0 {
					t.Errorf("%s is not asked", point)
				}
			}, node("a", "cpu=4"))
		})
	}
}
