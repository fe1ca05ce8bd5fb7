package capacity_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/capacity"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/metrics"
)

// member is a pod with a worker that records its mail.
type member struct {
	capacity.Pod
	regranted chan struct{}
}

func (m *member) Regrant() { m.regranted <- struct{}{} }

func ledger() (*capacity.Ledger, *corev1.Node) {
	l := capacity.New(capacity.Node{
		Name: "n", Metrics: metrics.New(), Log: slog.New(slog.DiscardHandler),
		Refuse: func(*corev1.Pod) *lifecycle.Rejection { return nil }, Features: func() []string { return nil },
	})
	return l, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("100"),
	}}}
}

// asking returns a pod that requests so much CPU.
func asking(uid, cpu string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "default", UID: types.UID(uid)}, Spec: corev1.PodSpec{
		NodeName: "n",
		Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		}}},
	}}
}

// TestNoTwoDecisionsUseTheSameResources admits pods at the same time, of which half fit.
func TestNoTwoDecisionsUseTheSameResources(t *testing.T) {
	l, node := ledger()
	results := make(chan *lifecycle.Rejection, 20)
	g := run.NewGroup(t.Context(), 0)
	for i := range cap(results) {
		g.Go(func(context.Context) { results <- l.Admit(asking(fmt.Sprint("p", i), "100m"), node) })
	}
	g.Wait()
	admitted := 0
	for range cap(results) {
		switch r := <-results; {
		case r == nil:
			admitted++
		case r.Reason != "OutOfcpu":
			t.Errorf("a pod is rejected for %s: %s", r.Reason, r.Message)
		}
	}
	if admitted != 10 {
		t.Errorf("%d pods of 100m admitted to a node with 1 CPU, want 10", admitted)
	}
}

// TestDeferredResizeIsGrantedWhenAPodLeaves resizes a pod on a full node: its worker gets mail when there is room, and the resources count
// from then on.
func TestDeferredResizeIsGrantedWhenAPodLeaves(t *testing.T) {
	l, node := ledger()
	a := &member{regranted: make(chan struct{}, 1)}
	for uid, pod := range map[types.UID]capacity.Pod{"a": a, "b": &member{}} {
		if r := l.Admit(asking(string(uid), "500m"), node); r != nil {
			t.Fatal(r)
		}
		l.Join(uid, pod)
	}
	if r := l.Regrant("a", asking("a", "800m"), asking("a", "500m"), node, time.Now()); r == nil {
		t.Fatal("a resize is granted for which the node lacks CPU")
	}
	l.Leave("b")
	select {
	case <-a.regranted:
	default:
		t.Fatal("no mail for the pod whose resize waited")
	}
	if r := l.Admit(asking("c", "300m"), node); r == nil || r.Reason != "OutOfcpu" {
		t.Errorf("a pod that fits only without the resize: %v, want OutOfcpu", r)
	}
	l.Free("a")
	if r := l.Admit(asking("d", "900m"), node); r != nil {
		t.Errorf("a pod is rejected though all others have ended: %s", r.Message)
	}
	l.SetClosing(true)
	if r := l.Admit(asking("e", "1m"), node); r == nil || r.Reason != "NodeShutdown" {
		t.Errorf("a pod on a machine that shuts down: %v", r)
	}
}
