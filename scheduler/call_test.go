package scheduler_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
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
	return scheduler.Options{Plugins: builtin.Default().Without("PrioritySort").With(plugin.Entry{Plugin: tr})}
}

// TestPanicsOutsideOfDecisions has a plug-in panic at the points that are called before and after a decision. Only the
// pod that it is called about may wait because of that (scheduler-S7).
func TestPanicsOutsideOfDecisions(t *testing.T) {
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
