package nodes

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/simulation"
)

func TestResourceMetrics(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	pod := func(name string, states ...corev1.ContainerState) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{
			simulation.CPUAnnotation: "500m", simulation.MemoryAnnotation: "1Ki",
		}}}
		for i, s := range states {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: string(rune('a' + i)), State: s})
		}
		return p
	}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-10 * time.Second))}}
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	text := string(ResourceMetrics(simulation.Uniform("n", 1), []*corev1.Pod{pod("web", runs, runs), pod("half", runs, waits), pod("not", waits)}, now))
	for _, want := range []string{
		"container_cpu_usage_seconds_total{container=\"b\",namespace=\"default\",pod=\"web\"} 5 1800000000000\n",
		"container_memory_working_set_bytes{container=\"a\",namespace=\"default\",pod=\"half\"} 1024 1800000000000\n",
		"pod_cpu_usage_seconds_total{namespace=\"default\",pod=\"web\"} 10 1800000000000\n",
		"node_cpu_usage_seconds_total 15 1800000000000\n", "node_memory_working_set_bytes 3072 1800000000000\n", "scrape_error 0\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, `pod="not"`) || strings.Contains(text, `container="b",namespace="default",pod="half"`) {
		t.Errorf("containers that do not run are among\n%s", text)
	}
}
