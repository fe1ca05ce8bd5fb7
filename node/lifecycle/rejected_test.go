package lifecycle_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/node/lifecycle"
)

// TestLateRejectionHasNoContainers rejects a pod whose status has a waiting container already, for which kubectl would
// show that container's reason. A pod that was rejected after a container ran keeps the statuses.
func TestLateRejectionHasNoContainers(t *testing.T) {
	waiting := corev1.ContainerStatus{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	ran := waiting
	ran.ContainerID = "sampan://1"
	rejection := lifecycle.Rejection{Reason: "UnexpectedAdmissionError", Message: "no devices"}
	for _, tt := range []struct {
		name   string
		last   corev1.ContainerStatus
		failed lifecycle.Verdict
		want   int
	}{
		{"rejected", waiting, rejection.Verdict(), 0},
		{"rejected after it ran", ran, rejection.Verdict(), 1},
		{"evicted", waiting, lifecycle.Verdict{Reason: "Evicted"}, 1},
	} {
		last := corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{tt.last}}
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}, Status: last}
		got := lifecycle.Runtime("sampan").Status(lifecycle.View{Pod: pod, Last: last, Memory: lifecycle.Memory{Failed: tt.failed}})
		if got.Phase != corev1.PodFailed || got.Reason != tt.failed.Reason || len(got.ContainerStatuses) != tt.want {
			t.Errorf("%s: phase %s, reason %q, %d container statuses, want %d", tt.name, got.Phase, got.Reason, len(got.ContainerStatuses), tt.want)
		}
	}
}
