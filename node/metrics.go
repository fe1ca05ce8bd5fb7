package node

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/node/lifecycle"
)

// metrics holds what /metrics and /metrics/probes serve, under the names of upstream's kubelet.
type metrics struct {
	registry *prometheus.Registry // of /metrics
	probes   *prometheus.Registry // of /metrics/probes
	defaults *kubeletconfig.Config

	podStart, podStartTotal, workerStart prometheus.Histogram
	work                                 *prometheus.HistogramVec
	started, startErrors                 *prometheus.CounterVec
	shutdownStart, shutdownEnd           prometheus.Gauge
	preemptions                          *prometheus.CounterVec

	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	inflight *prometheus.GaugeVec

	probed   *prometheus.CounterVec
	probing  *prometheus.HistogramVec
	mu       sync.Mutex
	counters map[types.UID]bool // guarded by mu; the pods with samples in probed and probing
}

const subsystem = "kubelet"

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help})
}

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help})
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: help, Buckets: buckets})
}

func histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: help, Buckets: buckets}, labels)
}

// startBuckets are upstream's, in seconds, with smaller ones: pods start faster here.
func startBuckets() []float64 {
	return []float64{0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(), probes: prometheus.NewRegistry(), defaults: kubeletconfig.Default(), counters: map[types.UID]bool{},

		podStart:      histogram("pod_start_duration_seconds", "Time from when the agent first saw a pod until it ran.", startBuckets()),
		podStartTotal: histogram("pod_start_total_duration_seconds", "Time from the creation of a pod until it ran.", startBuckets()),
		workerStart:   histogram("pod_worker_start_duration_seconds", "Time from when the agent first saw a pod until its worker began.", prometheus.DefBuckets),
		work:          histogramVec("pod_worker_duration_seconds", "Time that the worker of a pod took to look at it and to decide.", prometheus.DefBuckets, "operation_type"),
		started:       counterVec("started_containers_total", "Containers that were started.", "container_type"),
		startErrors:   counterVec("started_containers_errors_total", "Containers that could not be started.", "container_type", "code"),
		preemptions:   counterVec("preemptions", "Pods that ended to make room for a critical pod, by the resource that it lacked.", "preemption_signal"),
		shutdownStart: gauge("graceful_shutdown_start_time_seconds", "When the last shutdown of the machine began, in seconds since 1970; 0: never."),
		shutdownEnd:   gauge("graceful_shutdown_end_time_seconds", "When the pods had ended at the last shutdown of the machine, in seconds since 1970; 0: never."),
		requests:      counterVec("http_requests_total", "Requests to the node's API.", "method", "path", "server_type", "long_running"),
		took:          histogramVec("http_requests_duration_seconds", "How long requests to the node's API took.", prometheus.DefBuckets, "method", "path", "server_type", "long_running"),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: subsystem, Name: "http_inflight_requests", Help: "Requests to the node's API under way.",
		}, []string{"method", "path", "server_type", "long_running"}),

		probed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "prober", Name: "probe_total", Help: "Probes of containers, by result.",
		}, []string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		probing: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "prober", Name: "probe_duration_seconds", Help: "How long probes of containers took.",
		}, []string{"probe_type", "container", "pod", "namespace"}),
	}
	m.registry.MustRegister(
		m.podStart, m.podStartTotal, m.workerStart, m.work, m.started, m.startErrors, m.shutdownStart, m.shutdownEnd, m.preemptions, m.requests, m.took, m.inflight,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.probes.MustRegister(m.probed, m.probing)
	return m
}

// register adds the metrics that are read from the node when they are asked for.
func (m *metrics) register(n *Node) {
	m.registry.MustRegister(nodeState{n})
	if c, ok := n.opts.Runtime.(*CRI); ok {
		m.registry.MustRegister(c.calls.collectors()...)
	}
}

// Results of probes, as in upstream's kubelet.
const (
	probeSuccessful = "successful"
	probeFailed     = "failed"
	probeUnknown    = "unknown"
)

// probe counts one probe of a container: kind is Liveness, Readiness or Startup. A failure is a probe that was answered with
// no, or not in time; an error that kept it from being asked is unknown.
func (m *metrics) probe(pod *corev1.Pod, container, kind, result string, took time.Duration) {
	m.mu.Lock()
	m.counters[pod.UID] = true
	m.mu.Unlock()
	m.probed.WithLabelValues(kind, result, container, pod.Name, pod.Namespace, string(pod.UID)).Inc()
	m.probing.WithLabelValues(kind, container, pod.Name, pod.Namespace).Observe(took.Seconds())
}

// forget drops the samples of a pod that is gone.
func (m *metrics) forget(uid types.UID, name types.NamespacedName) {
	m.mu.Lock()
	had := m.counters[uid]
	delete(m.counters, uid)
	m.mu.Unlock()
	if had {
		m.probed.DeletePartialMatch(prometheus.Labels{"pod_uid": string(uid)})
		m.probing.DeletePartialMatch(prometheus.Labels{"pod": name.Name, "namespace": name.Namespace})
	}
}

// containerStarted counts an attempt at starting a container; code is empty if it succeeded.
func (m *metrics) containerStarted(o order, code string) {
	kind := "container"
	for i := range o.pod.Spec.InitContainers {
		if o.pod.Spec.InitContainers[i].Name == o.container.Name {
			kind = "init_container"
		}
	}
	if code == "" {
		m.started.WithLabelValues(kind).Inc()
	} else {
		m.startErrors.WithLabelValues(kind, code).Inc()
	}
}

// ran records that a pod began to run, if it did between two statuses.
func (m *metrics) ran(pod *corev1.Pod, seen time.Time, old, now *corev1.PodStatus, at time.Time) {
	if old.Phase == now.Phase || old.Phase != corev1.PodPending && old.Phase != "" || now.Phase != corev1.PodRunning {
		return
	}
	m.podStart.Observe(max(0, at.Sub(seen)).Seconds())
	m.podStartTotal.Observe(max(0, at.Sub(pod.CreationTimestamp.Time)).Seconds())
}

// nodeState collects what a node is and what runs on it.
type nodeState struct{ n *Node }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(subsystem+"_"+name, help, labels, nil)
}

var ( //nolint:gochecknoglobals // constants
	descName       = desc("node_name", "The name of the node; the value is 1.", "node")
	descPods       = desc("running_pods", "Pods with a sandbox that runs.")
	descContainers = desc("running_containers", "Containers in the runtime, by state.", "container_state")
	descDesired    = desc("desired_pods", "Pods that the node is to run.", "static")
	descActive     = desc("active_pods", "Pods that count when another one is admitted.", "static")
	descVolumes    = map[string]*prometheus.Desc{
		"capacity_bytes":  desc("volume_stats_capacity_bytes", "Size of the volume.", "namespace", "persistentvolumeclaim"),
		"available_bytes": desc("volume_stats_available_bytes", "Free space of the volume.", "namespace", "persistentvolumeclaim"),
		"used_bytes":      desc("volume_stats_used_bytes", "Used space of the volume.", "namespace", "persistentvolumeclaim"),
		"inodes":          desc("volume_stats_inodes", "Largest number of inodes of the volume.", "namespace", "persistentvolumeclaim"),
		"inodes_free":     desc("volume_stats_inodes_free", "Free inodes of the volume.", "namespace", "persistentvolumeclaim"),
		"inodes_used":     desc("volume_stats_inodes_used", "Used inodes of the volume.", "namespace", "persistentvolumeclaim"),
	}
	descMemoryMin = desc("memory_qos_node_memory_min_bytes", "Memory of Guaranteed pods that the kernel never takes away (memory.min).")
	descMemoryLow = desc("memory_qos_node_memory_low_bytes", "Memory of Burstable pods that the kernel takes away last (memory.low).")
	descBuild     = prometheus.NewDesc("kubernetes_build_info", "The version of the agent; the value is 1.", []string{"git_version"}, nil)
)

// Describe implements [prometheus.Collector].
func (nodeState) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descName, descPods, descContainers, descDesired, descActive, descMemoryMin, descMemoryLow, descBuild} {
		to <- d
	}
	for _, d := range descVolumes {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (s nodeState) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descName, 1, s.n.opts.Name)
	gauge(descBuild, 1, s.n.opts.Version)
	pods, desired, active := 0, 0, 0
	states := map[string]int{"created": 0, "exited": 0, "running": 0, "unknown": 0}
	for _, w := range s.n.allWorkers() {
		state, _ := w.status()
		if state.over {
			continue
		}
		runs := false
		for _, c := range state.containers {
			runs = runs || c.State == lifecycle.Running
			states[stateName(c.State)]++
		}
		if runs {
			pods++
		}
		if state.pod.DeletionTimestamp == nil {
			desired++
		}
		if state.pod.Status.Phase != corev1.PodSucceeded && state.pod.Status.Phase != corev1.PodFailed {
			active++
		}
	}
	gauge(descPods, float64(pods))
	gauge(descDesired, float64(desired), strconv.FormatBool(false))
	gauge(descActive, float64(active), strconv.FormatBool(false))
	for name, n := range states {
		gauge(descContainers, float64(n), name)
	}
	var hard, soft int64
	if s.n.cgroups != nil {
		hard, soft = s.n.cgroups.Protected()
	}
	gauge(descMemoryMin, float64(hard))
	gauge(descMemoryLow, float64(soft))
	s.volumes(gauge)
}

func stateName(s lifecycle.State) string {
	switch s {
	case lifecycle.Created:
		return "created"
	case lifecycle.Running:
		return "running"
	case lifecycle.Exited:
		return "exited"
	default:
		return "unknown"
	}
}

// volumes collects the volumes of claims.
func (s nodeState) volumes(gauge func(*prometheus.Desc, float64, ...string)) {
	seen := map[string]bool{}
	for _, w := range s.n.allWorkers() {
		state, _ := w.status()
		if state.over {
			continue
		}
		for _, v := range s.n.claimedVolumes(context.Background(), state.pod) { //nolint:forbidigo // it blocks for nothing but the kernel
			if v.PVCRef == nil || seen[v.PVCRef.Namespace+"/"+v.PVCRef.Name] {
				continue
			}
			seen[v.PVCRef.Namespace+"/"+v.PVCRef.Name] = true
			for name, value := range map[string]*uint64{
				"capacity_bytes": v.CapacityBytes, "available_bytes": v.AvailableBytes, "used_bytes": v.UsedBytes,
				"inodes": v.Inodes, "inodes_free": v.InodesFree, "inodes_used": v.InodesUsed,
			} {
				if value != nil {
					gauge(descVolumes[name], float64(*value), v.PVCRef.Namespace, v.PVCRef.Name)
				}
			}
		}
	}
}
