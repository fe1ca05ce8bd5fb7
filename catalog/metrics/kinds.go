package metrics

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/sampan-io/sampan/catalog"
)

// Kinds returns the kinds of the group. In a list of kinds they come last, because clients take the first resource that is
// called pods for pods.
func Kinds() []*catalog.Kind {
	return []*catalog.Kind{
		{
			GroupVersionKind: metricsv1beta1.SchemeGroupVersion.WithKind("NodeMetrics"),
			Resource:         "nodes",
			Singular:         "nodemetrics",
			Verbs:            []string{"get", "list"},
			Unstored:         catalog.Unstored{Computed: &catalog.Computed{From: corev1.SchemeGroupVersion.WithResource("nodes"), Handler: catalog.NodeUsage}},
			New:              func() catalog.Object { return &metricsv1beta1.NodeMetrics{} },
			NewList:          func() runtime.Object { return &metricsv1beta1.NodeMetricsList{} },
			Columns: columns(
				func(m *metricsv1beta1.NodeMetrics) corev1.ResourceList { return m.Usage },
				func(m *metricsv1beta1.NodeMetrics) string { return m.Window.Duration.String() },
			),
		},
		{
			GroupVersionKind: metricsv1beta1.SchemeGroupVersion.WithKind("PodMetrics"),
			Resource:         "pods",
			Singular:         "podmetrics",
			Namespaced:       true,
			Verbs:            []string{"get", "list"},
			Unstored:         catalog.Unstored{Computed: &catalog.Computed{From: corev1.SchemeGroupVersion.WithResource("pods"), Handler: catalog.PodUsage}},
			New:              func() catalog.Object { return &metricsv1beta1.PodMetrics{} },
			NewList:          func() runtime.Object { return &metricsv1beta1.PodMetricsList{} },
			Columns:          columns(sum, func(m *metricsv1beta1.PodMetrics) string { return m.Window.Duration.String() }),
		},
	}
}

// columns are those of metrics-server.
func columns[T catalog.Object](usage func(T) corev1.ResourceList, window func(T) string) []catalog.Column {
	return []catalog.Column{
		catalog.Text("cpu", "CPU in use, in cores", func(m T) string { return new(usage(m)).Cpu().String() }),
		catalog.Text("memory", "Working set in bytes", func(m T) string { return new(usage(m)).Memory().String() }),
		catalog.Text("Window", "The time over which CPU is averaged", window),
	}
}

// sum returns the use of a pod's containers together.
func sum(m *metricsv1beta1.PodMetrics) corev1.ResourceList {
	cpu, memory := resource.Quantity{Format: resource.DecimalSI}, resource.Quantity{Format: resource.BinarySI}
	for _, c := range m.Containers {
		cpu.Add(*c.Usage.Cpu())
		memory.Add(*c.Usage.Memory())
	}
	return corev1.ResourceList{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory}
}
