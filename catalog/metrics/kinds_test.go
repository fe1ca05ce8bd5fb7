package metrics_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/metrics"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, metrics.Kinds(), "testdata/accepted", "PodMetrics", "NodeMetrics")
}

func TestColumnsSumContainers(t *testing.T) {
	use := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	m := &metricsv1beta1.PodMetrics{
		Window:     metav1.Duration{Duration: 15 * time.Second},
		Containers: []metricsv1beta1.ContainerMetrics{{Usage: use("250m", "64Mi")}, {Usage: use("1", "1Mi")}},
	}
	want := []string{"1250m", "65Mi", "15s"}
	for i, c := range metrics.Kinds()[1].Columns {
		if got := c.Cell(m, time.Time{}); got != want[i] {
			t.Errorf("column %s: %v, want %s", c.Name, got, want[i])
		}
	}
}
