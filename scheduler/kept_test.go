package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// moody asks its Filter, which refuses all, only if no pod is placed anywhere; otherwise it skips, or has a Check that refuses
// none.
type moody struct{ check bool }

func (moody) Name() string { return "Moody" }
func (m moody) PreFilter(_ context.Context, _ *plugin.Pod, s *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	switch {
	case s.PlacedPods() == 0:
		return nil, plugin.Verdict{}
	case m.check:
		return content{}, plugin.Verdict{}
	}
	return nil, plugin.Skip
}

func (moody) Filter(*plugin.Pod, *plugin.Node) plugin.Verdict { return plugin.Refuse("moody") }

type content struct{}

func (content) Filter(*plugin.Node) plugin.Verdict { return plugin.Verdict{} }

// TestSkippedFilterDependsOnCluster has a plug-in whose Filter is asked at one time and not at another, about the same pod
// and a node that has not changed.
func TestSkippedFilterDependsOnCluster(t *testing.T) {
	for _, m := range []moody{{check: false}, {check: true}} {
		d := deciderOf(t, builtin.Default().With(plugin.Entry{Plugin: m}))
		c := &plugin.Cluster{}
		c.SetNode(plugintest.Node("a"))
		c.SetNode(plugintest.Node("b"))
		pod, other := plugin.NewPod(plugintest.Pod("p")), plugin.NewPod(plugintest.Pod("other", "cpu=7"))
		for range 3 {
			if got := d.DecideAll(t.Context(), c, scheduler.Question{Pod: pod, Signature: pod.Signature()}); got.Node != "" {
				t.Errorf("with a Check %v: %v, want a refusal", m.check, got.String())
			}
			c.Place(other, "a")
			if got := d.DecideAll(t.Context(), c, scheduler.Question{Pod: pod, Signature: pod.Signature()}); got.Node != "b" {
				t.Errorf("with a Check %v: %v, want node b", m.check, got.String())
			}
			c.Unplace(other.UID)
		}
	}
}

// TestARefusalHoldsForEqualPodsOnly asks about pods one after the other while nothing changes.
func TestARefusalHoldsForEqualPodsOnly(t *testing.T) {
	decide := func(d *scheduler.Decider, c *plugin.Cluster, pod *plugin.Pod, sign plugin.Signature) string {
		t.Helper()
		got := d.DecideAll(t.Context(), c, scheduler.Question{Pod: pod, Signature: sign})
		return got.Node
	}
	one := func() *plugin.Cluster {
		c := &plugin.Cluster{}
		c.SetNode(plugintest.Node("a", "cpu=2"))
		return c
	}
	t.Run("unlike", func(t *testing.T) {
		d, c := deciderOf(t, builtin.Default()), one()
		large, small := plugin.NewPod(plugintest.Pod("large", "cpu=3")), plugin.NewPod(plugintest.Pod("small", "cpu=1"))
		for _, sign := range []func(*plugin.Pod) plugin.Signature{func(*plugin.Pod) plugin.Signature { return "" }, func(p *plugin.Pod) plugin.Signature { return p.Signature() }} {
			if got := decide(d, c, large, sign(large)); got != "" {
				t.Errorf("large is on %s", got)
			}
			if got := decide(d, c, small, sign(small)); got != "a" {
				t.Errorf("small is on %q, want a", got)
			}
		}
	})
	t.Run("one is promised what the other is refused for", func(t *testing.T) {
		d, c := deciderOf(t, builtin.Default()), one()
		promised, twin := plugin.NewPod(plugintest.Pod("promised", "cpu=2")), plugin.NewPod(plugintest.Pod("twin", "cpu=2"))
		c.Nominate(promised, "a")
		for range 2 {
			if got := decide(d, c, twin, twin.Signature()); got != "" {
				t.Errorf("twin is on %s, which is promised to another", got)
			}
			if got := decide(d, c, promised, promised.Signature()); got != "a" {
				t.Errorf("promised is on %q, want a", got)
			}
		}
	})
	t.Run("an error is no refusal", func(t *testing.T) {
		fails := true
		d, c := deciderOf(t, builtin.Default().Without("DefaultPreemption").With(plugin.Entry{Plugin: maker{"Maker", func(plugin.Failure) (plugin.Nomination, plugin.Verdict) {
			if fails {
				return plugin.Nomination{}, plugin.Fail(errors.New("oh"))
			}
			return plugin.Nomination{}, plugin.Refuse("no way.")
		}}})), one()
		q := scheduler.Question{Pod: plugin.NewPod(plugintest.Pod("large", "cpu=3"))}
		q.Signature = q.Pod.Signature()
		if got := d.DecideAll(t.Context(), c, q); got.Err == nil {
			t.Errorf("%v, want an error", got.String())
		}
		fails = false
		if got := d.DecideAll(t.Context(), c, q); got.Err != nil || got.After != "no way." {
			t.Errorf("%v, want a refusal", got.String())
		}
	})
	t.Run("a promise in another cluster", func(t *testing.T) {
		// Generations do not identify a cluster: two clusters can have the same ones.
		d, full, empty := deciderOf(t, builtin.Default()), one(), one()
		full.Place(plugin.NewPod(plugintest.Pod("old", "cpu=2")), "a")
		empty.Place(plugin.NewPod(plugintest.Pod("old", "cpu=1")), "a")
		pod := plugin.NewPod(plugintest.Pod("p", "cpu=1"))
		for range 3 {
			if got := decide(d, full, pod, pod.Signature()); got != "" {
				t.Errorf("it is on %s, which is full", got)
			}
			if got := decide(d, empty, pod, pod.Signature()); got != "a" {
				t.Errorf("it is on %q, want a", got)
			}
		}
	})
}

// TestAPromisedNodeIsLookedAtFirst takes it although another one would score better, and asks all if it does not fit.
func TestAPromisedNodeIsLookedAtFirst(t *testing.T) {
	d := deciderOf(t, builtin.Default().With(plugin.Entry{Plugin: saying("Filter")}))
	c := &plugin.Cluster{}
	c.SetNode(plugintest.Node("a", "cpu=8"))
	c.SetNode(plugintest.Node("b", "cpu=3"))
	pod := plugin.NewPod(plugintest.Pod("p", "cpu=2"))
	for _, tt := range []struct{ promised, want string }{{"", "a"}, {"b", "b"}, {"gone", "a"}, {"a", "a"}} {
		c.Nominate(pod, tt.promised)
		for _, sign := range []plugin.Signature{"", pod.Signature(), pod.Signature()} {
			if got := d.Decide(t.Context(), c, scheduler.Question{Pod: pod, From: 1, Signature: sign}); got.Node != tt.want {
				t.Errorf("promised %q: %v, want node %s", tt.promised, got.String(), tt.want)
			}
		}
	}
	c.Nominate(pod, "b")
	c.SetNode(plugintest.Node("b", "cpu=1"))
	if got := d.Decide(t.Context(), c, scheduler.Question{Pod: pod}); got.Node != "a" {
		t.Errorf("%v, want node a, since b is too small", got.String())
	}
	failing := deciderOf(t, plugin.Set{Entries: []plugin.Entry{{Plugin: failingFilter{}}}})
	for _, promised := range []string{"", "b"} {
		c.Nominate(pod, promised)
		if got := failing.Decide(t.Context(), c, scheduler.Question{Pod: pod}); got.Err == nil || got.Node != "" {
			t.Errorf("promised %q: %v, want an error", promised, got.String())
		}
	}
}

type failingFilter struct{}

func (failingFilter) Name() string { return "Failing" }
func (failingFilter) Filter(*plugin.Pod, *plugin.Node) plugin.Verdict {
	return plugin.Fail(errors.New("oh"))
}

// worker is a plug-in whose PreFilter works something out for the points that come later.
type worker struct {
	mu   sync.Mutex
	told []string // guarded by mu
}

type workedOut struct{ of string }

func (workedOut) Filter(*plugin.Node) plugin.Verdict { return plugin.Verdict{} }

func (*worker) Name() string { return "Worker" }
func (*worker) PreFilter(_ context.Context, pod *plugin.Pod, _ *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	return workedOut{pod.Name}, plugin.Verdict{}
}

func (w *worker) tell(point string, p plugin.Placement) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, fmt.Sprintf("%s %v", point, p.Check))
}

func (w *worker) Reserve(_ context.Context, p plugin.Placement) plugin.Verdict {
	w.tell("reserve", p)
	return plugin.Verdict{}
}
func (w *worker) Unreserve(_ context.Context, p plugin.Placement) { w.tell("unreserve", p) }
func (w *worker) PreBind(_ context.Context, p plugin.Placement) plugin.Verdict {
	w.tell("preBind", p)
	return plugin.Verdict{}
}
func (w *worker) PostBind(_ context.Context, p plugin.Placement) { w.tell("postBind", p) }

// TestResultsComeBack at all later points, to the plug-in whose it is.
func TestResultsComeBack(t *testing.T) {
	w := &worker{}
	schedulingWith(t, scheduler.Options{Plugins: builtin.Default().With(plugin.Entry{Plugin: w})}, func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("one"))
		expect(t, s, "one:a")
		if got, want := fmt.Sprint(w.told), "[reserve {one} preBind {one} postBind {one}]"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
	}, node("a"))
}
