package node

import (
	"context"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/criclient"
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

// TestMemoryInUseIsNotTakenAway shrinks a container and a pod below and above what they use.
func TestMemoryInUseIsNotTakenAway(t *testing.T) {
	const used = 100 << 20
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u"}}
	n := &Node{opts: Options{Runtime: memoryUse{bytes: used}}}
	for _, tt := range []struct {
		limit              int64
		ofContainer, whole string
	}{
		{used + 1, "", ""},
		{
			used, `cannot decrease memory limits: attempting to set container "a" memory limit (104857600) below current usage (104857600)`,
			"cannot decrease memory limits: attempting to set pod memory limit (104857600) below current usage (104857600)",
		},
	} {
		if err := n.checkContainerUsage(t.Context(), lifecycle.Action{Container: "a", ID: "a0"}, tt.limit); words(err) != tt.ofContainer {
			t.Errorf("%v, want %s", err, tt.ofContainer)
		}
		if err := n.checkPodUsage(t.Context(), pod, tt.limit); words(err) != tt.whole {
			t.Errorf("%v, want %s", err, tt.whole)
		}
	}
	for _, tt := range []struct {
		before, after int64
		want          bool
	}{{0, 0, false}, {0, 5, true}, {5, 0, false}, {5, 5, false}, {5, 6, false}, {6, 5, true}} {
		if got := shrinks(tt.before, tt.after); got != tt.want {
			t.Errorf("from %d to %d: %v, want %v", tt.before, tt.after, got, tt.want)
		}
	}
}

func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// memoryUse is a runtime in which everything uses this much memory.
type memoryUse struct {
	criclient.Runtime
	bytes uint64
}

func (u memoryUse) memory() *cri.MemoryUsage {
	return &cri.MemoryUsage{UsageBytes: &cri.UInt64Value{Value: u.bytes}}
}

func (u memoryUse) ListContainerStats(context.Context, *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error) {
	return []*cri.ContainerStats{{Memory: u.memory()}}, nil
}

func (u memoryUse) ListPodSandboxStats(context.Context, *cri.PodSandboxStatsFilter) ([]*cri.PodSandboxStats, error) {
	return []*cri.PodSandboxStats{{Linux: &cri.LinuxPodSandboxStats{Memory: u.memory()}}}, nil
}
