package metrics

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/node/metrics/metricstest"
)

func TestStartWithoutPullsAndInitContainers(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}, InitContainers: []corev1.Container{{Name: "i"}}}}
	pod.CreationTimestamp = metav1.NewTime(at(0))
	running := &corev1.PodStatus{
		ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "i", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(at(11)), FinishedAt: metav1.NewTime(at(14))},
		}}},
	}
	m := New()
	s := NewStarting(pod)
	for _, pull := range [][2]int{{4, 8}, {2, 6}, {9, 10}} { // 7 s in all
		s.Pulled(at(pull[0]), at(pull[1]))
	}
	m.Pods.Reported(&s, pod, &corev1.PodStatus{}, at(1))
	m.Pods.Reported(&s, pod, running, at(20))
	m.Pods.Reported(&s, pod, running, at(30))
	if n := metricstest.Sum(t, m.Registry, "kubelet_pod_start_total_duration_seconds", nil); n != 1 {
		t.Errorf("%v starts, want 1", n)
	}
	if got := metricstest.Sum(t, m.Registry, "kubelet_first_network_pod_start_sli_duration_seconds", nil); got != 10 {
		t.Errorf("the start took %v s without pulls and init containers, want 20 - 7 - 3", got)
	}
	pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}}}
	s = NewStarting(pod)
	m.Pods.Reported(&s, pod, running, at(20))
	if all, n := metricstest.Sum(t, m.Registry, "kubelet_pod_start_total_duration_seconds", nil), metricstest.Sum(t, m.Registry, "kubelet_pod_start_sli_duration_seconds", nil); all != 2 || n != 1 {
		t.Errorf("%v starts, %v of them of pods without other volumes, want 2 and 1", all, n)
	}
	pod.Status.StartTime = &pod.CreationTimestamp
	if NewStarting(pod).counts {
		t.Error("the start of a pod counts that another agent has begun")
	}
}

func TestSizeBucket(t *testing.T) {
	for size, want := range map[uint64]string{0: "N/A", 1: "0-10MB", 10 << 20: "0-10MB", 10<<20 + 1: "10MB-100MB", 1<<30 + 1: "1GB-5GB", 200 << 30: "GT100GB"} {
		if got := sizeBucket(size); got != want {
			t.Errorf("bucket of %d bytes is %s, want %s", size, got, want)
		}
	}
}

func TestRejectionsByReason(t *testing.T) {
	m := New()
	for _, reason := range []string{"OutOfcpu", "OutOfexample.com/gpu", "NodePorts", "Evicted"} {
		m.Pods.Rejected(reason)
	}
	for _, reason := range []string{"OutOfcpu", "OutOfExtendedResources", "Other", "Evicted"} {
		if n := metricstest.Sum(t, m.Registry, "kubelet_admission_rejections_total", map[string]string{"reason": reason}); n != 1 {
			t.Errorf("%v rejections for %s, want 1", n, reason)
		}
	}
}
