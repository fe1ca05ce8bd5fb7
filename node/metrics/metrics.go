package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Metrics holds what /metrics, /metrics/probes and /metrics/slis serve, under the names of upstream's kubelet.
type Metrics struct {
	Registry      *prometheus.Registry   // of /metrics
	ProbeRegistry *prometheus.Registry   // of /metrics/probes
	Checks        *HealthChecks          // of /metrics/slis
	all           []prometheus.Collector // in registry

	Pods       *Pods
	Images     *Images
	Volumes    *Volumes
	Resizes    *Resizes
	Startup    *Startup
	Devices    *Devices
	Processors Processors

	ShutdownStart, ShutdownEnd            prometheus.Gauge
	EventStreams, EventStreamErrors       prometheus.Counter
	EventLatency                          prometheus.Histogram
	CgroupCreate, CgroupUpdate, CgroupEnd prometheus.Observer

	Requests        *prometheus.CounterVec
	RequestDuration *prometheus.HistogramVec
	InFlight        *prometheus.GaugeVec
	WebSockets      *prometheus.CounterVec

	probed   *prometheus.CounterVec
	probing  *prometheus.HistogramVec
	mu       sync.Mutex
	counters map[types.UID]bool // guarded by mu; the pods with samples in probed and probing
}

const Subsystem = "kubelet"

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Subsystem: Subsystem, Name: name, Help: help})
}

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: Subsystem, Name: name, Help: help}, labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: Subsystem, Name: name, Help: help})
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Subsystem: Subsystem, Name: name, Help: help, Buckets: buckets})
}

func histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: Subsystem, Name: name, Help: help, Buckets: buckets}, labels)
}

// add has /metrics serve a metric, and returns it.
func add[T prometheus.Collector](m *Metrics, c T) T {
	m.Registry.MustRegister(c)
	m.all = append(m.all, c)
	return c
}

// Serve has /metrics serve another metric.
func (m *Metrics) Serve(c prometheus.Collector) { add(m, c) }

// Collectors returns all metrics of the agent itself.
func (m *Metrics) Collectors() []prometheus.Collector {
	return append(slices.Clone(m.all), m.probed, m.probing, m.Checks.is, m.Checks.total)
}

func New() *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(), ProbeRegistry: prometheus.NewRegistry(), Checks: newHealthChecks(), counters: map[types.UID]bool{},
		probed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "prober", Name: "probe_total", Help: "Probes of containers, by result.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		probing: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "prober", Name: "probe_duration_seconds", Help: "How long probes of containers took that succeeded.",
		}, []string{"probe_type", "container", "pod", "namespace"}),
	}
	m.Pods, m.Images, m.Volumes = newPodMetrics(m), newImageMetrics(m), newVolumeMetrics(m)
	m.Resizes, m.Startup, m.Devices = newResizeMetrics(m), newStartupMetrics(m), newDeviceMetrics(m)
	m.Processors = newProcessorMetrics(m)

	m.ShutdownStart = add(m, gauge("graceful_shutdown_start_time_seconds", "When the last shutdown of the machine began, in seconds since 1970; 0: never."))
	m.ShutdownEnd = add(m, gauge("graceful_shutdown_end_time_seconds", "When the pods had ended at the last shutdown of the machine, in seconds since 1970; 0: never."))
	m.EventStreams = add(m, counter("evented_pleg_connection_success_count", "Streams of events that the container runtime opened."))
	m.EventStreamErrors = add(m, counter("evented_pleg_connection_error_count", "Streams of events of the container runtime that broke or could not be opened."))
	m.EventLatency = add(m, histogram("evented_pleg_connection_latency_seconds", "Time from an event in the container runtime until the agent received it.", prometheus.DefBuckets))
	cgroups := add(m, histogramVec("cgroup_manager_duration_seconds", "How long changes of the cgroups of pods took.", prometheus.DefBuckets, "operation_type"))
	m.CgroupCreate, m.CgroupUpdate, m.CgroupEnd = cgroups.WithLabelValues("create"), cgroups.WithLabelValues("update"), cgroups.WithLabelValues("destroy")

	request := []string{"method", "path", "server_type", "long_running"}
	m.Requests = add(m, counterVec("http_requests_total", "Requests to the node's API.", request...))
	m.RequestDuration = add(m, histogramVec("http_requests_duration_seconds", "How long requests to the node's API took.", prometheus.DefBuckets, request...))
	m.InFlight = add(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Subsystem: Subsystem, Name: "http_inflight_requests", Help: "Requests to the node's API under way.",
	}, request))
	m.WebSockets = add(m, counterVec("websocket_streaming_requests_total", "Requests for streams of containers over WebSocket.", "subresource"))

	m.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.ProbeRegistry.MustRegister(m.probed, m.probing)
	return m
}

// Results of probes, as in upstream's kubelet.
const (
	ProbeSuccessful = "successful"
	ProbeFailed     = "failed"
	ProbeUnknown    = "unknown"
)

// A Probe has the counters of one probe of a container, so that they are looked up once. A counter is made when
// it is first needed. It is used by one goroutine at a time.
type Probe struct {
	results map[string]prometheus.Counter
}

// Probed counts one probe of a container: kind is Liveness, Readiness or Startup. A failure is a probe that was answered
// with no, or not in time; an error that kept it from being asked is unknown. As in upstream's kubelet only the
// duration of a probe that succeeded counts: that of others is mostly their timeout.
func (m *Metrics) Probed(of *Probe, pod *corev1.Pod, container, kind, result string, took time.Duration) {
	if of.results == nil {
		of.results = map[string]prometheus.Counter{}
		m.mu.Lock()
		m.counters[pod.UID] = true
		m.mu.Unlock()
	}
	if of.results[result] == nil {
		of.results[result] = m.probed.WithLabelValues(kind, result, container, pod.Name, pod.Namespace, string(pod.UID))
	}
	of.results[result].Inc()
	if result != ProbeSuccessful {
		return
	}
	// These labels are also those of a pod that has taken the name, whose samples go when the first one is forgotten:
	// they are not kept.
	m.probing.WithLabelValues(kind, container, pod.Name, pod.Namespace).Observe(took.Seconds())
}

// Forget drops the samples of a pod that is gone.
func (m *Metrics) Forget(uid types.UID, name types.NamespacedName) {
	m.mu.Lock()
	had := m.counters[uid]
	delete(m.counters, uid)
	m.mu.Unlock()
	if had {
		m.probed.DeletePartialMatch(prometheus.Labels{"pod_uid": string(uid)})
		m.probing.DeletePartialMatch(prometheus.Labels{"pod": name.Name, "namespace": name.Namespace})
	}
	m.Volumes.forget(uid)
}
