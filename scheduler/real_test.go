package scheduler_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/election"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// bully makes room by ending all pods of the first node that are less important.
type bully struct{}

func (bully) Name() string { return "DefaultPreemption" }

func (bully) PostFilter(_ context.Context, f plugin.Failure) (plugin.Nomination, plugin.Verdict) {
	for _, n := range f.Snapshot().Nodes() {
		var victims []*plugin.Pod
		for _, p := range n.Pods {
			if p.Priority() < f.Pod().Priority() {
				victims = append(victims, p)
			}
		}
		for _, v := range victims {
			f.Remove(v)
		}
		if f.Fits(n).OK() {
			return plugin.Nomination{Node: n.Name, Victims: victims}, plugin.Verdict{}
		}
	}
	return plugin.Nomination{}, plugin.Refuse("preemption: nobody gives way.")
}

// TestTheIdentityOfTheSchedulerSuffices runs against the real API server with the rights that the scheduler has in a
// cluster, by election, and does everything that a scheduler does: it binds, refuses, and makes room.
func TestTheIdentityOfTheSchedulerSuffices(t *testing.T) {
	server := apiservertest.Open(t, nil)
	boss := server.As(auth.User{Name: "boss", Groups: []string{"system:masters"}})
	itself := server.As(auth.User{Name: "system:kube-scheduler", Groups: []string{"system:authenticated"}})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"default", "kube-system"} {
		_, err := client.Namespaces.Create(t.Context(), boss, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		must(err)
	}
	n := node("a", "cpu=1")
	n.UID = ""
	_, err := client.Nodes.Create(t.Context(), boss, n)
	must(err)
	s, err := scheduler.New(scheduler.Options{Client: itself, Plugins: builtin.Default().With(plugin.Entry{Plugin: bully{}})})
	must(err)
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) {
		err := election.Run(ctx, election.Options{
			Client: itself, Namespace: "kube-system", Name: "kube-scheduler", Identity: "me",
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		}, s.Run)
		if err != nil {
			t.Error(err)
		}
	})
	create := func(name, cpu string, priority int32) {
		t.Helper()
		p := pod(name, "cpu="+cpu)
		p.UID, p.Spec.Priority = "", &priority
		_, err := client.Pods.Create(t.Context(), boss, p)
		must(err)
	}
	// await waits until the pod is as it should be.
	await := func(what, name string, is func(p *corev1.Pod) bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for e, err := range client.Pods.Watch(ctx, boss, "default", metav1.ListOptions{FieldSelector: "metadata.name=" + name, SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}) {
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if p, ok := e.Object.(*corev1.Pod); ok && p.Name == name && is(p) {
				return
			}
		}
	}
	create("small", "600m", 0)
	await("small is bound", "small", func(p *corev1.Pod) bool { return p.Spec.NodeName == "a" })
	create("huge", "100", 0)
	await("huge is refused", "huge", func(p *corev1.Pod) bool {
		return len(p.Status.Conditions) == 1 && p.Status.Conditions[0].Message == "0/1 nodes are available: 1 Insufficient cpu. preemption: nobody gives way."
	})
	create("important", "700m", 10)
	await("important is promised room", "important", func(p *corev1.Pod) bool { return p.Status.NominatedNodeName == "a" || p.Spec.NodeName == "a" })
	await("small is asked to go", "small", func(p *corev1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonPreemptionByScheduler && p.DeletionTimestamp != nil {
				return true
			}
		}
		return false
	})
	// As the node agent would, when its containers have stopped.
	must(client.Pods.Delete(t.Context(), boss, "default", "small", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	await("important is bound", "important", func(p *corev1.Pod) bool { return p.Spec.NodeName == "a" })
}
