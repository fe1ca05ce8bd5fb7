package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// probe is a plug-in that says at each point what a test wants.
type probe struct {
	filter  func(pod *plugin.Pod, node *plugin.Node) plugin.Verdict
	permit  func(p plugin.Placement, held plugin.Held) (plugin.Verdict, time.Duration)
	preBind func(ctx context.Context, p plugin.Placement) plugin.Verdict
	hints   []plugin.Hint

	mu    sync.Mutex
	diary []string // guarded by mu
}

func (p *probe) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.diary = append(p.diary, fmt.Sprintf(format, args...))
}

func (p *probe) told() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := strings.Join(p.diary, ", ")
	p.diary = nil
	return out
}

func (*probe) Name() string           { return "Probe" }
func (p *probe) Hints() []plugin.Hint { return p.hints }
func (p *probe) Filter(pod *plugin.Pod, node *plugin.Node) plugin.Verdict {
	if p.filter == nil {
		return plugin.Verdict{}
	}
	return p.filter(pod, node)
}

func (p *probe) Reserve(_ context.Context, at plugin.Placement) plugin.Verdict {
	p.note("reserve %s on %s", at.Pod.Name, at.Node)
	return plugin.Verdict{}
}

func (p *probe) Unreserve(_ context.Context, at plugin.Placement) {
	p.note("unreserve %s", at.Pod.Name)
}

func (p *probe) Permit(_ context.Context, at plugin.Placement, held plugin.Held) (plugin.Verdict, time.Duration) {
	if p.permit == nil {
		return plugin.Verdict{}, 0
	}
	return p.permit(at, held)
}

func (p *probe) PreBind(ctx context.Context, at plugin.Placement) plugin.Verdict {
	if p.preBind == nil {
		return plugin.Verdict{}
	}
	return p.preBind(ctx, at)
}
func (p *probe) PostBind(_ context.Context, at plugin.Placement) { p.note("bound %s", at.Pod.Name) }

func with(p *probe) plugin.Set { return builtin.Default().With(plugin.Entry{Plugin: p}) }

func TestPanicFailsOnlyItsPod(t *testing.T) {
	p := &probe{}
	var mended atomic.Bool
	p.filter = func(pod *plugin.Pod, _ *plugin.Node) plugin.Verdict {
		if pod.Labels["bad"] != "" && !mended.Load() {
			panic("oh no")
		}
		return plugin.Verdict{}
	}
	schedulingWith(t, scheduler.Options{Plugins: with(p)}, func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("bad", "label=bad=yes", "priority=1000"), pod("good"))
		expect(t, s, "bad: good:a")
		if got := events(t, s, "bad"); len(got) != 1 || got[0] != `Warning FailedScheduling: plug-in "Probe" panicked: oh no` {
			t.Errorf("events: %q", got)
		}
		if c := clienttest.Find(s, client.Pods, "default", "bad").Status.Conditions; len(c) != 1 || c[0].Reason != corev1.PodReasonSchedulerError {
			t.Errorf("conditions: %v", c)
		}
		time.Sleep(time.Hour)
		expect(t, s, "bad: good:a")
		mended.Store(true)
		time.Sleep(time.Minute)
		expect(t, s, "bad:a good:a")
	}, node("a"))
}

func TestReservationsAreUndone(t *testing.T) {
	p := &probe{}
	var disk atomic.Bool
	p.preBind = func(context.Context, plugin.Placement) plugin.Verdict {
		if !disk.Load() {
			return plugin.Fail(errors.New("no disk"))
		}
		return plugin.Verdict{}
	}
	schedulingWith(t, scheduler.Options{Plugins: with(p)}, func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("one", "cpu=8"))
		expect(t, s, "one:")
		if got := p.told(); got != "reserve one on a, unreserve one" {
			t.Errorf("diary: %q", got)
		}
		disk.Store(true)
		s.Set(t, pod("two", "cpu=8"))
		expect(t, s, "one: two:a")
		if got := p.told(); got != "reserve two on a, bound two" {
			t.Errorf("diary: %q", got)
		}
	}, node("a"))
}

func TestPermitHoldsAGangUntilAllAreThere(t *testing.T) {
	p := &probe{}
	p.permit = func(at plugin.Placement, held plugin.Held) (plugin.Verdict, time.Duration) {
		var others []plugin.Placement
		held.Each(func(o plugin.Placement) bool { others = append(others, o); return true })
		if len(others) < 2 {
			return plugin.Hold("waiting for the gang"), time.Minute
		}
		for _, o := range others {
			held.Allow(o.Pod.UID)
		}
		return plugin.Verdict{}, 0
	}
	schedulingWith(t, scheduler.Options{Plugins: with(p)}, func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("one"), pod("two"))
		expect(t, s, "one: two:")
		s.Set(t, pod("three"))
		expect(t, s, "one:a three:a two:a")
		// One alone is refused when its time is over, and what it held is free.
		p.told()
		s.Set(t, pod("alone", "cpu=8"))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := p.told(); !strings.HasPrefix(got, "reserve alone on a, unreserve alone") {
			t.Errorf("diary: %q", got)
		}
		if got := events(t, s, "alone"); len(got) == 0 || !strings.Contains(got[0], "rejected due to timeout after waiting 1m0s at plugin Probe") {
			t.Errorf("events: %q", got)
		}
		s.Remove(t, pod("alone"))
	}, node("a"))
}

func TestHintsSelectPodsToRetry(t *testing.T) {
	p := &probe{hints: []plugin.Hint{{
		Resource: client.Nodes.GroupVersionResource, Action: plugin.NodeLabels,
		Helps: func(pod *plugin.Pod, c plugin.Change) bool { return c.Node.Labels["for"] == pod.Labels["app"] },
	}}}
	p.filter = func(pod *plugin.Pod, n *plugin.Node) plugin.Verdict {
		p.note("%s", pod.Name)
		if n.Labels["for"] == pod.Labels["app"] {
			return plugin.Verdict{}
		}
		return plugin.Never("not for it")
	}
	schedulingWith(t, scheduler.Options{Plugins: with(p)}, func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("web", "label=app=web"), pod("db", "label=app=db"))
		expect(t, s, "db: web:")
		p.told()
		s.Set(t, node("a", "cpu=16")) // cannot help, says the hint
		s.Set(t, node("a", "for=nobody"))
		synctest.Wait()
		if got := p.told(); got != "" {
			t.Errorf("tried again in vain: %q", got)
		}
		s.Set(t, node("a", "for=db"))
		expect(t, s, "db:a web:")
		if got := p.told(); strings.Contains(got, "web") {
			t.Errorf("tried again in vain: %q", got)
		}
	}, node("a"))
}

// TestManyThatFitNowhereCostNothing has ten thousand equal pods that fit nowhere beside one that does.
func TestManyThatFitNowhereCostNothing(t *testing.T) {
	var objs []client.Object
	for i := range 10 {
		objs = append(objs, node(fmt.Sprintf("n%d", i), "cpu=1"))
	}
	for i := range 10_000 {
		objs = append(objs, pod(fmt.Sprintf("huge-%05d", i), "cpu=100"))
	}
	p := &probe{}
	var asked atomic.Int64
	p.filter = func(*plugin.Pod, *plugin.Node) plugin.Verdict { asked.Add(1); return plugin.Verdict{} }
	set := builtin.Default()
	set.Entries = slices.Insert(set.Entries, 0, plugin.Entry{Plugin: p, Only: plugin.AtFilter})
	schedulingWith(t, scheduler.Options{Plugins: set}, func(t *testing.T, s *clienttest.Server) {
		synctest.Wait()
		if got := asked.Load(); got > 10 {
			t.Errorf("10,000 equal pods were asked about %d times on 10 nodes, want once on each", got)
		}
		s.Writes()
		asked.Store(0)
		time.Sleep(24 * time.Hour)
		if got := s.Writes(); asked.Load() != 0 || len(got) != 0 {
			t.Errorf("in an idle day %d questions and writes %v", asked.Load(), got)
		}
		s.Set(t, pod("small", "cpu=1"))
		synctest.Wait()
		if at := clienttest.Find(s, client.Pods, "default", "small").Spec.NodeName; at == "" {
			t.Error("the one that fits is not bound")
		}
		asked.Store(0)
		s.Remove(t, pod("small")) // one of the many looks whether that helps
		synctest.Wait()
		if got := asked.Load(); got > 10 {
			t.Errorf("the end of a pod made %d questions, want one for each node", got)
		}
		s.Set(t, node("big", "cpu=250")) // two fit
		synctest.Wait()
		if got := s.Writes(); len(got) > 30 {
			t.Errorf("%d writes for two pods that fit", len(got))
		}
	}, objs...)
}

func TestANodeThatVanishesBeforeTheBinding(t *testing.T) {
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		hold := make(chan struct{})
		var back atomic.Bool
		s.Intercept(func(r clienttest.Request) error {
			if r.Subresource == "binding" && !back.Load() {
				<-hold
				return errors.New("connection reset")
			}
			return nil
		})
		s.Set(t, pod("one"))
		synctest.Wait()
		s.Remove(t, node("a"))
		s.Set(t, node("b"))
		synctest.Wait()
		back.Store(true)
		close(hold)
		time.Sleep(time.Minute)
		expect(t, s, "one:b")
	}, node("a"))
}

func TestAServerThatRestarts(t *testing.T) {
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		s.Intercept(func(clienttest.Request) error { return errors.New("connection refused") })
		s.BreakWatches(errors.New("connection reset"))
		s.Set(t, pod("one", "cpu=5"), pod("two", "cpu=5"))
		time.Sleep(10 * time.Minute)
		s.Remove(t, pod("old"))
		s.Intercept(nil)
		time.Sleep(5 * time.Minute) // watches are tried again every half minute or so, one after the other
		synctest.Wait()
		if got := where(t, s); got != "one:a two:" && got != "one: two:a" {
			t.Errorf("pods are at %q", got)
		}
	}, node("a"), pod("old", "cpu=8", "on=a"))
}

func TestTwoSchedulersOfOneName(t *testing.T) {
	var objs []client.Object
	for i := range 5 {
		objs = append(objs, node(fmt.Sprintf("n%d", i), "cpu=2"))
	}
	for i := range 12 {
		objs = append(objs, pod(fmt.Sprintf("p%02d", i), "cpu=1"))
	}
	schedulingWith(t, scheduler.Options{Plugins: builtin.Default()}, func(t *testing.T, s *clienttest.Server) {
		beside(t, s, scheduler.Options{Plugins: builtin.Default()})
		for i := range 5 {
			s.Remove(t, pod(fmt.Sprintf("p%02d", i)))
			s.Set(t, pod(fmt.Sprintf("q%02d", i), "cpu=1"))
		}
		time.Sleep(time.Hour)
		count := map[string]int{}
		for w := range strings.FieldsSeq(where(t, s)) {
			_, n, _ := strings.Cut(w, ":")
			count[n]++
		}
		for n, pods := range count {
			if n != "" && pods > 2 {
				// Each decides by what it has seen: two of them can overfill a node, as two of upstream's do.
				t.Logf("%d pods are at %s", pods, n)
			}
		}
		if count[""] > 2 {
			t.Errorf("%d pods wait, want 2", count[""])
		}
	}, objs...)
}

// TestPodsThatFitAreBoundInTheEnd lets pods, nodes and failures come and go, and then looks whether anything that
// some node could hold still waits, and whether a node is over what it has.
func TestPodsThatFitAreBoundInTheEnd(t *testing.T) {
	for seed := range 20 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { churn(t, uint64(seed)) })
	}
}
