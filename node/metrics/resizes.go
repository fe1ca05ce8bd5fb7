package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/sampan-io/sampan/node/lifecycle"
)

// Resizes count resizes of pods.
type Resizes struct {
	requested *prometheus.CounterVec
	took      *prometheus.HistogramVec
	Accepted  *prometheus.CounterVec
	deferred  *prometheus.HistogramVec

	Infeasible *prometheus.CounterVec
}

func newResizeMetrics(m *Metrics) *Resizes {
	return &Resizes{
		requested: add(m, counterVec("container_requested_resizes_total", "Resizes of containers that were asked for, each resource by itself.", "resource", "requirement", "operation")),
		took: add(m, histogramVec("pod_resize_duration_milliseconds", "How long it took to apply granted resources to a container or to a pod as a whole.",
			[]float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000}, "success")),
		Infeasible: add(m, counterVec("pod_infeasible_resizes_total", "Resizes that the node will never grant, by the reason.", "reason_detail")),
		Accepted:   add(m, counterVec("pod_deferred_accepted_resizes_total", "Resizes that were granted after they had waited, by what freed the resources.", "retry_trigger")),
		deferred: add(m, histogramVec("pod_deferred_resize_duration_seconds", "How long resizes waited for resources of the node, by what ended the wait.",
			[]float64{5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180, 300, 600, 1200, 1800, 3600}, "resolution", "priority_bucket")),
	}
}

// A FreedBy is what freed resources that a deferred resize waits for.
type FreedBy string

const (
	PodResized    FreedBy = "pod_resized"
	PodUpdated    FreedBy = "pod_updated"
	PodsRemoved   FreedBy = "pods_removed"
	PodTerminated FreedBy = "pod_terminated"
)

// How the wait of a resize ends.
const (
	WaitAccepted   = "accepted"
	WaitReverted   = "reverted"
	WaitTerminated = "terminated"
)

// Waited records the end of the wait of a resize to the resources of a pod, which began at a time.
func (m *Resizes) Waited(wanted *corev1.Pod, since time.Time, resolution string) {
	m.deferred.WithLabelValues(resolution, PriorityBucket(wanted)).Observe(time.Since(since).Seconds())
}

// Applied records that granted resources were applied, or could not be.
func (m *Resizes) Applied(began time.Time, err error) {
	m.took.WithLabelValues(strconv.FormatBool(err == nil)).Observe(float64(time.Since(began).Milliseconds()))
}

// Asked counts the resources of containers that differ between two versions of a pod.
func (m *Resizes) Asked(old, pod *corev1.Pod) {
	lifecycle.EachResizable(pod, func(c *corev1.Container) {
		before, _ := lifecycle.Spec(old, c.Name)
		if before == nil {
			return
		}
		for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if op := change(before.Resources.Requests[r], c.Resources.Requests[r]); op != "" {
				m.requested.WithLabelValues(string(r), "requests", op).Inc()
			}
			if op := change(before.Resources.Limits[r], c.Resources.Limits[r]); op != "" {
				m.requested.WithLabelValues(string(r), "limits", op).Inc()
			}
		}
	})
}

// change returns how a quantity changes; "" if it does not. One that is 0 is none.
func change(old, now resource.Quantity) string {
	order := now.Cmp(old)
	switch {
	case order == 0:
		return ""
	case now.IsZero():
		return "remove"
	case old.IsZero():
		return "add"
	case order > 0:
		return "increase"
	}
	return "decrease"
}

// PriorityBucket returns the name that metrics have for the priority of a pod.
func PriorityBucket(pod *corev1.Pod) string {
	const system, high, low = 2_000_000_000, 100_000, -1000
	switch p := corev1helpers.PodPriority(pod); {
	case p >= system:
		return "system-critical"
	case p >= high:
		return "high"
	case p > 0:
		return "medium"
	case p == 0:
		return "normal"
	case p > low:
		return "low"
	}
	return "very-low"
}
