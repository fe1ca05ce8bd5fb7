package nodes_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/run"
)

// An op is something that happens to the cluster, after a pause.
type op struct {
	pause time.Duration
	what  string // create, delete, cut, restore, stop or start
	pod   int
	node  int
	grace int64

	restart corev1.RestartPolicy
	inits   int
	probe   bool
}

// TestLivesAreLegal lets pods with random lives come and go on nodes that are cut off and
// restored, and holds what a watcher sees against what the API promises of pods.
func TestLivesAreLegal(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		plan := drawPlan(rt)
		ops := rapid.SliceOfN(rapid.Custom(drawOp), 1, 25).Draw(rt, "ops")
		var faults []string
		synctest.Test(t, func(t *testing.T) { faults = live(t, plan, ops) })
		if len(faults) > 0 {
			rt.Fatalf("%s\nplan:\n%s", strings.Join(faults, "\n"), plan)
		}
	})
}

func drawPlan(rt *rapid.T) string {
	duration := rapid.SampledFrom([]string{"0s", "1ms", "1s", "7s", "40s", "0s..10s", "1s..90s"})
	var b strings.Builder
	b.WriteString("pods:\n")
	for range rapid.IntRange(1, 4).Draw(rt, "rules") {
		fmt.Fprintf(&b, "- probability: %v\n", rapid.SampledFrom([]float64{0.3, 0.7, 1}).Draw(rt, "probability"))
		for _, field := range []string{"startDelay", "readyDelay", "stopDelay"} {
			if rapid.Bool().Draw(rt, field) {
				fmt.Fprintf(&b, "  %s: %s\n", field, duration.Draw(rt, field))
			}
		}
		if rapid.Bool().Draw(rt, "ends") {
			fmt.Fprintf(&b, "  runDuration: %s\n  exitCode: %d\n", duration.Draw(rt, "runDuration"), rapid.IntRange(0, 1).Draw(rt, "exitCode"))
		}
		if rapid.IntRange(0, 4).Draw(rt, "neverReady") == 0 {
			b.WriteString("  neverReady: true\n")
		}
		if rapid.IntRange(0, 6).Draw(rt, "pullError") == 0 {
			b.WriteString("  imagePullError: gone\n")
		}
	}
	return b.String()
}

func drawOp(rt *rapid.T) op {
	return op{
		pause:   rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, time.Second, 9 * time.Second, time.Minute}).Draw(rt, "pause"),
		what:    rapid.SampledFrom([]string{"create", "create", "create", "delete", "delete", "cut", "restore", "stop", "start"}).Draw(rt, "what"),
		pod:     rapid.IntRange(0, 5).Draw(rt, "pod"),
		node:    rapid.IntRange(0, 1).Draw(rt, "node"),
		grace:   rapid.SampledFrom([]int64{1, 5, 30}).Draw(rt, "grace"),
		restart: rapid.SampledFrom([]corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}).Draw(rt, "restart"),
		inits:   rapid.IntRange(0, 2).Draw(rt, "inits"),
		probe:   rapid.Bool().Draw(rt, "probe"),
	}
}

// live plays the ops and returns what was against the law.
func live(t *testing.T, plan string, ops []op) []string {
	r := newRig(t, plan)
	stop := r.start()
	running := true
	law := &law{heard: true, seen: map[string]*corev1.Pod{}, addresses: map[string]string{}, began: time.Now()}
	g := run.NewGroup(r.Context(), 0)
	g.Go(func(ctx context.Context) {
		for e, err := range client.Pods.Watch(ctx, r.api, "", metav1.ListOptions{}) {
			if err != nil {
				return
			}
			law.judge(e)
		}
	})
	for _, o := range ops {
		// An agent that is stopped or cut off hears of a deletion late.
		law.heard = law.heard && o.what != "cut" && o.what != "stop"
	}
	for _, o := range ops {
		time.Sleep(o.pause)
		synctest.Wait()
		name := fmt.Sprint("p", o.pod)
		switch o.what {
		case "create":
			if r.pod(name) != nil {
				continue
			}
			r.create(newPod(name, fmt.Sprint("n-", o.node), func(p *corev1.Pod) {
				p.Spec.RestartPolicy = o.restart
				for i := range o.inits {
					p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: fmt.Sprint("i", i), Image: "demo:v1"})
				}
				if o.probe {
					p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{InitialDelaySeconds: 2}
				}
			}))
		case "delete":
			if r.pod(name) != nil {
				r.delete(name, o.grace)
			}
		case "cut", "restore":
			r.fail(fmt.Sprint("n-", o.node), o.what == "cut")
		case "stop":
			stop()
			stop, running = func() {}, false
		case "start":
			if !running {
				stop, running = r.start(), true
			}
		}
	}
	// In the end all is well again, and everything goes in time.
	if !running {
		stop = r.start()
	}
	for i := range 2 {
		r.fail(fmt.Sprint("n-", i), false)
	}
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	for _, p := range clienttest.All(r.api, client.Pods, "") {
		if p.Status.Phase == corev1.PodPending && p.Status.ContainerStatuses[0].State.Waiting.Reason == "ContainerCreating" {
			law.fault(p, "was never started")
		}
		if p.DeletionTimestamp != nil {
			law.fault(p, "was deleted and is still there")
		}
		r.delete(p.Name, 30)
	}
	time.Sleep(31 * time.Second)
	synctest.Wait()
	for _, p := range clienttest.All(r.api, client.Pods, "") {
		law.fault(p, "is there after its grace period")
	}
	g.Stop()
	stop()
	return law.faults
}

// law is what holds of pods, whatever happens.
type law struct {
	began     time.Time
	heard     bool                   // every deletion at once
	seen      map[string]*corev1.Pod // by name: the last that was seen
	addresses map[string]string      // of pods that run: whose
	faults    []string
}

func (l *law) fault(p *corev1.Pod, format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf("+%v: pod %s %s: %s", time.Since(l.began), p.Name, fmt.Sprintf(format, args...), brief(p)))
}

// rank says which phases may follow which.
var rank = map[corev1.PodPhase]int{corev1.PodPending: 0, corev1.PodRunning: 1, corev1.PodSucceeded: 2, corev1.PodFailed: 2}

func (l *law) judge(e watch.Event) {
	p := e.Object.(*corev1.Pod)
	old := l.seen[p.Name]
	if old != nil && old.UID != p.UID {
		old = nil
	}
	running := slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
	if e.Type == watch.Deleted {
		delete(l.seen, p.Name)
		l.leave(p)
		if p.DeletionTimestamp == nil && rank[p.Status.Phase] < 2 && p.Spec.NodeName != "" { // others go at once
			l.fault(p, "went without having been deleted")
		}
		// A pod without grace goes at once; no other with containers that run.
		if running && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds != 0 {
			l.fault(p, "went while its containers ran")
		}
		return
	}
	l.seen[p.Name] = p
	over := rank[p.Status.Phase] == 2
	switch {
	case over && running:
		l.fault(p, "has ended, and its containers run")
	case isReady(p) && p.Status.Phase != corev1.PodRunning:
		l.fault(p, "is ready and does not run")
	case running && p.Status.PodIP == "":
		l.fault(p, "runs without an address")
	case running && slices.ContainsFunc(p.Status.InitContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Terminated == nil }):
		l.fault(p, "runs before its init containers have ended")
	}
	if over {
		l.leave(p)
	} else if ip := p.Status.PodIP; ip != "" && running {
		if whose := l.addresses[ip]; whose != "" && whose != string(p.UID) {
			l.fault(p, "has the address %s of another", ip)
		}
		l.addresses[ip] = string(p.UID)
	}
	if old != nil {
		l.follows(old, p)
	}
}

func (l *law) leave(p *corev1.Pod) {
	if l.addresses[p.Status.PodIP] == string(p.UID) {
		delete(l.addresses, p.Status.PodIP)
	}
}

// follows judges the step from one version to the next.
func (l *law) follows(old, p *corev1.Pod) {
	switch {
	case rank[p.Status.Phase] < rank[old.Status.Phase]:
		l.fault(p, "was %s", old.Status.Phase)
	case rank[old.Status.Phase] == 2 && p.Status.Phase != old.Status.Phase:
		l.fault(p, "had ended as %s", old.Status.Phase)
	case old.Status.StartTime != nil && !old.Status.StartTime.Equal(p.Status.StartTime):
		l.fault(p, "started at %v and now at %v", old.Status.StartTime, p.Status.StartTime)
	}
	for i, c := range p.Status.ContainerStatuses {
		if i >= len(old.Status.ContainerStatuses) {
			break
		}
		was := old.Status.ContainerStatuses[i]
		switch {
		case c.RestartCount < was.RestartCount:
			l.fault(p, "container %s was started %d times before", c.Name, was.RestartCount)
		case c.RestartCount == was.RestartCount && was.State.Terminated != nil && c.State.Running != nil:
			l.fault(p, "container %s ran again without having been counted", c.Name)
		case c.RestartCount > was.RestartCount && p.Spec.RestartPolicy == corev1.RestartPolicyNever:
			l.fault(p, "container %s was started again, which its policy forbids", c.Name)
		case c.State.Running != nil && was.State.Running != nil && c.ContainerID == was.ContainerID && !c.State.Running.StartedAt.Equal(&was.State.Running.StartedAt):
			l.fault(p, "container %s changed its start", c.Name)
		}
		// Its grace: what is signalled has ended by then.
		if t := c.State.Terminated; t != nil && was.State.Running != nil && p.DeletionTimestamp != nil && l.heard {
			if late := t.FinishedAt.Sub(p.DeletionTimestamp.Time); late > time.Second {
				l.fault(p, "container %s ended %v after the grace period", c.Name, late)
			}
		}
	}
}
