package stats

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Names of the metrics.
const (
	NodeCPU         = "node_cpu_usage_seconds_total"
	NodeMemory      = "node_memory_working_set_bytes"
	PodCPU          = "pod_cpu_usage_seconds_total"
	PodMemory       = "pod_memory_working_set_bytes"
	ContainerCPU    = "container_cpu_usage_seconds_total"
	ContainerMemory = "container_memory_working_set_bytes"
	ContainerStart  = "container_start_time_seconds"
	NodeSwap        = "node_swap_usage_bytes"
	PodSwap         = "pod_swap_usage_bytes"
	ContainerSwap   = "container_swap_usage_bytes"
	SwapLimit       = "container_swap_limit_bytes"
	ScrapeError     = "scrape_error"
	resourceError   = "resource_scrape_error"
)

// ContentType is the media type of what [Metrics] returns.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Metrics returns the CPU, memory and swap of a summary in the text format of Prometheus. If the summary is nil,
// because measuring failed, the only metrics are the ones about that.
func Metrics(s *statsapi.Summary) []byte {
	var w metricWriter
	failed := 1.0
	if s != nil {
		failed = 0
		w.resources(s)
	}
	for _, name := range []string{resourceError, ScrapeError} {
		w.begin(name, "gauge", "1 if the usage could not be measured, otherwise 0")
		w.sample(name, "", failed, metav1.Time{})
	}
	return w.Bytes()
}

func (w *metricWriter) resources(s *statsapi.Summary) {
	w.containers(s, ContainerCPU, "counter", "CPU time that the container has used, in seconds of one core", func(c *statsapi.ContainerStats) (float64, metav1.Time, bool) { return cpuOf(c.CPU) })
	w.containers(s, ContainerMemory, "gauge", "Working set of the container in bytes", func(c *statsapi.ContainerStats) (float64, metav1.Time, bool) { return workingSet(c.Memory) })
	w.containers(s, ContainerStart, "gauge", "When the container was started, in seconds since 1970", func(c *statsapi.ContainerStats) (float64, metav1.Time, bool) {
		return float64(c.StartTime.UnixNano()) / float64(time.Second), metav1.Time{}, c.StartTime.Unix() > 0
	})
	w.containers(s, SwapLimit, "gauge", "Swap that the container may use, in bytes", func(c *statsapi.ContainerStats) (float64, metav1.Time, bool) {
		if c.Swap == nil || c.Swap.SwapAvailableBytes == nil {
			return 0, metav1.Time{}, false
		}
		return float64(*c.Swap.SwapAvailableBytes + deref(c.Swap.SwapUsageBytes)), c.Swap.Time, true
	})
	w.containers(s, ContainerSwap, "gauge", "Swap that the container uses, in bytes", func(c *statsapi.ContainerStats) (float64, metav1.Time, bool) { return swapUsed(c.Swap) })
	w.begin(NodeCPU, "counter", "CPU time that the node has used, in seconds of one core")
	if v, t, ok := cpuOf(s.Node.CPU); ok {
		w.sample(NodeCPU, "", v, t)
	}
	w.begin(NodeMemory, "gauge", "Working set of the node in bytes")
	if v, t, ok := workingSet(s.Node.Memory); ok {
		w.sample(NodeMemory, "", v, t)
	}
	w.begin(NodeSwap, "gauge", "Swap that the node uses, in bytes")
	if v, t, ok := swapUsed(s.Node.Swap); ok {
		w.sample(NodeSwap, "", v, t)
	}
	w.pods(s, PodCPU, "counter", "CPU time that the pod has used, in seconds of one core", func(p *statsapi.PodStats) (float64, metav1.Time, bool) { return cpuOf(p.CPU) })
	w.pods(s, PodMemory, "gauge", "Working set of the pod in bytes", func(p *statsapi.PodStats) (float64, metav1.Time, bool) { return workingSet(p.Memory) })
	w.pods(s, PodSwap, "gauge", "Swap that the pod uses, in bytes", func(p *statsapi.PodStats) (float64, metav1.Time, bool) { return swapUsed(p.Swap) })
}

func cpuOf(c *statsapi.CPUStats) (float64, metav1.Time, bool) {
	if c == nil || c.UsageCoreNanoSeconds == nil {
		return 0, metav1.Time{}, false
	}
	return float64(*c.UsageCoreNanoSeconds) / float64(time.Second), c.Time, true
}

func workingSet(m *statsapi.MemoryStats) (float64, metav1.Time, bool) {
	if m == nil || m.WorkingSetBytes == nil {
		return 0, metav1.Time{}, false
	}
	return float64(*m.WorkingSetBytes), m.Time, true
}

func swapUsed(s *statsapi.SwapStats) (float64, metav1.Time, bool) {
	if s == nil || s.SwapUsageBytes == nil {
		return 0, metav1.Time{}, false
	}
	return float64(*s.SwapUsageBytes), s.Time, true
}

// metricWriter writes metrics.
type metricWriter struct {
	bytes.Buffer
	begun map[string]bool // the names so far
}

func (w *metricWriter) begin(name, kind, help string) {
	if w.begun == nil {
		w.begun = map[string]bool{}
	}
	w.begun[name] = true
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// sample writes a value, with its time in milliseconds unless that is zero.
func (w *metricWriter) sample(name, labels string, value float64, t metav1.Time) {
	w.WriteString(name)
	w.WriteString(labels)
	w.value(value, t)
}

// labelled is sample with labels in parts and without braces: it is called thousands of times for one answer.
func (w *metricWriter) labelled(name, labels, more string, value float64, t metav1.Time) {
	w.WriteString(name)
	w.WriteByte('{')
	w.WriteString(labels)
	w.WriteString(more)
	w.WriteByte('}')
	w.value(value, t)
}

func (w *metricWriter) value(value float64, t metav1.Time) {
	b := append(w.AvailableBuffer(), ' ')
	b = strconv.AppendFloat(b, value, 'g', -1, 64)
	if !t.IsZero() {
		b = append(b, ' ')
		b = strconv.AppendInt(b, t.UnixMilli(), 10)
	}
	w.Write(append(b, '\n'))
}

func (w *metricWriter) containers(s *statsapi.Summary, name, kind, help string, get func(*statsapi.ContainerStats) (float64, metav1.Time, bool)) {
	w.begin(name, kind, help)
	for i := range s.Pods {
		p := &s.Pods[i]
		for j := range p.Containers {
			c := &p.Containers[j]
			if v, t, ok := get(c); ok {
				w.sample(name, labels("container", c.Name, "namespace", p.PodRef.Namespace, "pod", p.PodRef.Name), v, t)
			}
		}
	}
}

func (w *metricWriter) pods(s *statsapi.Summary, name, kind, help string, get func(*statsapi.PodStats) (float64, metav1.Time, bool)) {
	w.begin(name, kind, help)
	for i := range s.Pods {
		p := &s.Pods[i]
		if v, t, ok := get(p); ok {
			w.sample(name, labels("namespace", p.PodRef.Namespace, "pod", p.PodRef.Name), v, t)
		}
	}
}

// labels returns names and values as a set of labels.
func labels(pairs ...string) string {
	b := []byte{'{'}
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, pairs[i]...), '=', '"')
		b = append(append(b, escaped(pairs[i+1])...), '"')
	}
	return string(append(b, '}'))
}

// escaped returns the value of a label in the text format. Few values need it.
func escaped(value string) string {
	if !strings.ContainsAny(value, "\\\"\n") {
		return value
	}
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value)
}
