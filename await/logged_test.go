package await_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/await"
)

func TestVerdictLogged(t *testing.T) {
	began, epoch := metav1.NewTime(time.Unix(1_700_000_000, 0)), metav1.NewTime(time.Unix(0, 0))
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	ended := func(at metav1.Time) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, StartedAt: at}}
	}
	for _, tt := range []struct {
		name   string
		degree await.Degree
		status corev1.ContainerStatus
		want   bool
	}{
		{"no image", await.Ready, corev1.ContainerStatus{State: waits("ErrImagePull")}, false},
		{"crashes", await.Ready, corev1.ContainerStatus{State: waits("CrashLoopBackOff"), LastTerminationState: ended(began)}, true},
		{"runs", await.Ready, corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}}}, true},
		{"did not start", await.Ready, corev1.ContainerStatus{State: ended(metav1.Time{})}, false},
		{"did not start, as the kubelet says it", await.Ready, corev1.ContainerStatus{State: ended(epoch)}, false},
		{"is to go", await.Deleted, corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.status.Name = "c"
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}, Spec: corev1.PodSpec{NodeName: "n"}}
			p.Status.Phase, p.Status.ContainerStatuses = corev1.PodPending, []corev1.ContainerStatus{tt.status}
			v, err := await.Judge(tt.degree, await.View{Object: p})
			if err != nil || v.Logged != tt.want {
				t.Errorf("verdict %v (log %v), %v, want log %v", v, v.Logged, err, tt.want)
			}
		})
	}
}
