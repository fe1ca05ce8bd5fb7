package node

import (
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/node/lifecycle"
)

func memory(amount string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(amount)}}
}

// TestRestartForResizeWidensThePod restarts a container with other resources: the cgroup of the pod has to allow them, and still those
// that another container has.
func TestRestartForResizeWidensThePod(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: memory("2Gi")}, {Name: "b", Resources: memory("1Gi")}}}}
	w := newWorker(&Node{log: slog.New(slog.DiscardHandler)}, pod)
	r := &w.view.Memory.Resize
	r.Allocated["a"], r.Allocated["b"] = memory("2Gi"), memory("1Gi")
	r.Applied["a0"], r.Applied["b0"] = memory("1Gi"), memory("3Gi")
	w.view.Containers = []lifecycle.Container{{ID: "a0", Name: "a", State: lifecycle.Exited}, {ID: "b0", Name: "b", State: lifecycle.Running}}
	o := w.making(lifecycle.Action{Container: "a", Attempt: 1})
	if o.limits == nil {
		t.Fatal("the cgroup of the pod keeps its old limits")
	}
	for i, want := range []string{"2Gi", "3Gi"} {
		if got := o.limits.Spec.Containers[i].Resources.Limits[corev1.ResourceMemory]; got.String() != want {
			t.Errorf("container %d may have %s, want %s", i, got.String(), want)
		}
	}
	r.Applied["a0"] = memory("2Gi")
	if o := w.making(lifecycle.Action{Container: "a", Attempt: 1}); o.limits != nil {
		t.Error("a restart without a resize sets limits")
	}
}
