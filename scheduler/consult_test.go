package scheduler_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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

// outsider is an extender for pods with the label app=gpu.
type outsider struct {
	ask       func(ctx context.Context, nodes []*corev1.Node) (scheduler.Opinion, error)
	ignorable bool
	bind      func(pod *corev1.Pod, node string) error
}

func (*outsider) Name() string                    { return "outsider" }
func (*outsider) Interested(pod *corev1.Pod) bool { return pod.Labels["app"] == "gpu" }
func (o *outsider) Ignorable() bool               { return o.ignorable }
func (o *outsider) Binds() bool                   { return o.bind != nil }
func (o *outsider) Ask(ctx context.Context, _ *corev1.Pod, nodes []*corev1.Node) (scheduler.Opinion, error) {
	return o.ask(ctx, nodes)
}

func (o *outsider) Spare(context.Context, *corev1.Pod, string, []*corev1.Pod) (bool, error) {
	return true, nil
}

func (o *outsider) Bind(_ context.Context, pod *corev1.Pod, node string) error {
	return o.bind(pod, node)
}

func extended(o *outsider) scheduler.Options {
	return scheduler.Options{Plugins: builtin.Default(), Extenders: []scheduler.Extender{o}}
}

func TestHangingExtenderDelaysOnlyItsPods(t *testing.T) {
	o := &outsider{ask: func(ctx context.Context, _ []*corev1.Node) (scheduler.Opinion, error) {
		select { // as one that has a timeout
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
		return scheduler.Opinion{}, errors.New("timeout")
	}}
	schedulingWith(t, extended(o), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("gpu-1", "label=app=gpu", "priority=10"), pod("gpu-2", "label=app=gpu", "priority=10"), pod("web"))
		expect(t, s, "gpu-1: gpu-2: web:a") // at once
		time.Sleep(6 * time.Second)
		if got := events(t, s, "gpu-1"); len(got) != 1 || got[0] != "Warning FailedScheduling: extender outsider: timeout" {
			t.Errorf("events: %q", got)
		}
	}, node("a"))
	o.ignorable = true
	schedulingWith(t, extended(o), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("gpu-1", "label=app=gpu"))
		time.Sleep(6 * time.Second)
		expect(t, s, "gpu-1:a")
	}, node("a"))
}

func TestAnExtenderRulesOutAndRanks(t *testing.T) {
	o := &outsider{ask: func(_ context.Context, nodes []*corev1.Node) (scheduler.Opinion, error) {
		out := scheduler.Opinion{Refused: map[string]plugin.Verdict{}, Scores: map[string]int64{}}
		for _, n := range nodes {
			if n.Labels["gpu"] == "" {
				out.Refused[n.Name] = plugin.Never("no GPU")
			}
			if n.Labels["gpu"] == "fast" {
				out.Scores[n.Name] = 1000
			}
		}
		return out, nil
	}}
	schedulingWith(t, extended(o), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("one", "label=app=gpu", "cpu=5"))
		expect(t, s, "one:c")
		s.Set(t, pod("two", "label=app=gpu", "cpu=5"))
		expect(t, s, "one:c two:b")
		s.Set(t, pod("three", "label=app=gpu", "cpu=5"))
		expect(t, s, "one:c three: two:b")
		if got := events(t, s, "three"); len(got) != 1 || !strings.Contains(got[0], "0/3 nodes are available: 1 no GPU, 2 Insufficient cpu.") {
			t.Errorf("events: %q", got)
		}
		s.Remove(t, pod("two"))
		expect(t, s, "one:c three:b")
	}, node("a"), node("b", "gpu=slow"), node("c", "gpu=fast"))
}

func TestAnExtenderThatBinds(t *testing.T) {
	var told []string
	o := &outsider{
		ask:  func(context.Context, []*corev1.Node) (scheduler.Opinion, error) { return scheduler.Opinion{}, nil },
		bind: func(p *corev1.Pod, node string) error { told = append(told, p.Name+" to "+node); return nil },
	}
	schedulingWith(t, extended(o), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("one", "label=app=gpu"))
		synctest.Wait()
		if !slices.Equal(told, []string{"one to a"}) {
			t.Errorf("told %q", told)
		}
		expect(t, s, "one:") // the extender has not kept its word
	}, node("a"))
}

// TestARefusalOfAnExtenderIsItsOwn asks it about each pod, since it may answer otherwise about the next equal one.
func TestARefusalOfAnExtenderIsItsOwn(t *testing.T) {
	asked := 0
	o := &outsider{ask: func(_ context.Context, nodes []*corev1.Node) (scheduler.Opinion, error) {
		if asked++; asked == 1 {
			return scheduler.Opinion{Refused: map[string]plugin.Verdict{nodes[0].Name: plugin.Never("no GPU")}}, nil
		}
		return scheduler.Opinion{}, nil
	}}
	schedulingWith(t, extended(o), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("one", "label=app=gpu"))
		expect(t, s, "one:")
		s.Set(t, pod("two", "label=app=gpu"))
		synctest.Wait()
		if at := clienttest.Find(s, client.Pods, "default", "two").Spec.NodeName; at != "a" {
			t.Errorf("two is on %q, want a; the extender was asked %d times", at, asked)
		}
	}, node("a"))
}
