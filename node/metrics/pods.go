package metrics

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resources "k8s.io/component-helpers/resource"

	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/node/lifecycle"
)

// Pods count what happens to pods and their containers.
type Pods struct {
	start, startTotal, startSLI prometheus.Histogram
	firstSLI                    prometheus.Gauge // of the first pod with a network of its own
	first                       sync.Once        // sets it
	WorkerStart, StatusSync     prometheus.Histogram
	Containers                  prometheus.Histogram
	Sync, Kill                  prometheus.Observer // turns of workers

	started, startErrors         prometheus.Counter // sandboxes
	userStarted, userStartErrors prometheus.Counter // sandboxes with users of their own
	containersStarted            *prometheus.CounterVec
	containerErrors              *prometheus.CounterVec
	terminated                   *prometheus.CounterVec

	admissions, rejections *prometheus.CounterVec
	Evictions, Preemptions *prometheus.CounterVec
	StatsAge               *prometheus.HistogramVec
	Restarted              prometheus.Counter // static pods
	Orphans                prometheus.Counter
	Cleaned, CleanErrors   prometheus.Gauge // orphans with files

	SleepsEnded, HookFallbacks prometheus.Counter
}

// startBuckets are upstream's, in seconds, with smaller ones: pods start faster here.
func startBuckets() []float64 {
	return []float64{0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
}

func newPodMetrics(m *Metrics) *Pods {
	work := add(m, histogramVec("pod_worker_duration_seconds", "Time that the worker of a pod took to look at it and to decide.", prometheus.DefBuckets, "operation_type"))
	static := add(m, counterVec("restarted_pods_total", "Pods that were started again with the UID of a pod that was ending: static pods.", "static"))
	return &Pods{
		start:       add(m, histogram("pod_start_duration_seconds", "Time from when the agent first saw a pod until it ran.", startBuckets())),
		startTotal:  add(m, histogram("pod_start_total_duration_seconds", "Time from the creation of a pod until the API server knew that all its containers ran.", startBuckets())),
		startSLI:    add(m, histogram("pod_start_sli_duration_seconds", "Time from the creation of a pod without persistent volumes until the API server knew that all its containers ran, without the time of pulls and init containers.", startBuckets())),
		firstSLI:    add(m, gauge("first_network_pod_start_sli_duration_seconds", "Time from the creation of the first pod with a network of its own and no persistent volumes until the API server knew that all its containers ran, without the time of pulls and init containers.")),
		WorkerStart: add(m, histogram("pod_worker_start_duration_seconds", "Time from when the agent first saw a pod until its worker began.", prometheus.DefBuckets)),
		StatusSync: add(m, histogram("pod_status_sync_duration_seconds", "Time from a change of the status of a pod until the API server had it.",
			[]float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 20, 30, 45, 60})),
		Containers: add(m, histogram("containers_per_pod_count", "Containers of pods, without init containers.", prometheus.ExponentialBuckets(1, 2, 5))),
		Sync:       work.WithLabelValues("sync"), Kill: work.WithLabelValues("kill"),

		started:           add(m, counter("started_pods_total", "Attempts at making the sandbox of a pod.")),
		startErrors:       add(m, counter("started_pods_errors_total", "Attempts at making the sandbox of a pod that failed.")),
		userStarted:       add(m, counter("started_user_namespaced_pods_total", "Attempts at making the sandbox of a pod with users of its own.")),
		userStartErrors:   add(m, counter("started_user_namespaced_pods_errors_total", "Attempts at making the sandbox of a pod with users of its own that failed.")),
		containersStarted: add(m, counterVec("started_containers_total", "Attempts at starting a container.", "container_type")),
		containerErrors:   add(m, counterVec("started_containers_errors_total", "Attempts at starting a container that failed, by reason.", "container_type", "code")),
		terminated:        add(m, counterVec("terminated_containers_total", "Containers that ended.", "container_type", "exit_code", "reason")),

		admissions:  add(m, counterVec("pod_level_resources_admission_total", "Admitted pods, by whether the pod or its containers have resources.", "config_mode", "qos_class")),
		rejections:  add(m, counterVec("admission_rejections_total", "Pods that the node rejected, by reason.", "reason")),
		Evictions:   add(m, counterVec("evictions", "Evicted pods, by the signal that fell below its threshold or by the limit of the pod.", "eviction_signal")),
		Preemptions: add(m, counterVec("preemptions", "Pods that ended to make room for a critical pod, by the resource that it lacked.", "preemption_signal")),
		StatsAge:    add(m, histogramVec("eviction_stats_age_seconds", "Age of the measurement for which a pod was evicted.", prometheus.DefBuckets, "eviction_signal")),
		Restarted:   static.WithLabelValues("true"),
		Orphans:     add(m, counter("orphaned_runtime_pods_total", "Pods of the runtime that the API server did not have when the agent started.")),
		Cleaned:     add(m, gauge("orphan_pod_cleaned_volumes", "Pods with files that the API server did not have when the agent started.")),
		CleanErrors: add(m, gauge("orphan_pod_cleaned_volumes_errors", "Pods with files that the API server did not have when the agent started, and whose files could not be removed yet.")),

		SleepsEnded:   add(m, counter("sleep_action_terminated_early_total", "Hooks of the kind sleep that ended before their time.")),
		HookFallbacks: add(m, counter("lifecycle_handler_http_fallbacks_total", "Hooks over HTTPS that a server without TLS answered.")),
	}
}

// containerType returns the name that metrics have for the kind of a container.
func containerType(pod *corev1.Pod, name string) string {
	switch c, isInit := lifecycle.Spec(pod, name); {
	case isInit:
		return "init_container"
	case c != nil && !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name }):
		return "ephemeral_container"
	}
	return "container"
}

// ContainerStarted counts an attempt at starting a container; code is empty if it succeeded.
func (m *Pods) ContainerStarted(pod *corev1.Pod, name, code string) {
	kind := containerType(pod, name)
	m.containersStarted.WithLabelValues(kind).Inc()
	if code != "" {
		m.containerErrors.WithLabelValues(kind, code).Inc()
	}
}

// Sandboxed counts an attempt at making the sandbox of a pod.
func (m *Pods) Sandboxed(pod *corev1.Pod, err error) {
	m.started.Inc()
	if err != nil {
		m.startErrors.Inc()
	}
	if pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
		return
	}
	m.userStarted.Inc()
	if err != nil {
		m.userStartErrors.Inc()
	}
}

// Ended counts the containers that ended between two looks at the runtime. At the first look the earlier state is the
// one in the status of the pod, so that a container is counted that ended while no agent ran.
func (m *Pods) Ended(pod *corev1.Pod, before, now []lifecycle.Container, first map[string]bool) {
	for i := range now {
		c := &now[i]
		if c.State != lifecycle.Exited {
			continue
		}
		j := slices.IndexFunc(before, func(b lifecycle.Container) bool { return b.ID == c.ID })
		if j >= 0 && before[j].State == lifecycle.Exited || first != nil && !first[c.ID] {
			continue
		}
		m.terminated.WithLabelValues(containerType(pod, c.Name), strconv.Itoa(int(c.ExitCode)), c.TerminationReason()).Inc()
	}
}

// RunningIn returns the IDs of the containers that run as a status has it.
func RunningIn(scheme lifecycle.Runtime, s *corev1.PodStatus, containers []lifecycle.Container) map[string]bool {
	all := map[string]bool{}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].State.Running != nil {
				all[list[i].ContainerID] = true
			}
		}
	}
	ids := map[string]bool{}
	for i := range containers {
		if all[scheme.ID(containers[i].ID)] {
			ids[containers[i].ID] = true
		}
	}
	return ids
}

// Ran records that a pod began to run, if it did between two statuses.
func (m *Pods) Ran(seen time.Time, old, now *corev1.PodStatus, at time.Time) {
	if old.Phase == now.Phase || old.Phase != corev1.PodPending && old.Phase != "" || now.Phase != corev1.PodRunning {
		return
	}
	m.start.Observe(max(0, at.Sub(seen)).Seconds())
}

// Rejected counts a pod that the node rejected. Upstream's kubelet counts the same reasons one by one, and others
// together.
func (m *Pods) Rejected(reason string) {
	known := []string{
		"AppArmor", "Evicted", "InitContainerRestartPolicyForbidden", "InvalidNodeInfo", "NodeShutdown", "OutOfcpu", "OutOfephemeral-storage", "OutOfmemory", "OutOfpods",
		"PodFeatureUnsupported", "PodLevelResourcesNotSupported", "PodOSNotSupported", "PodOSSelectorNodeLabelDoesNotMatch", "SupplementalGroupsPolicyNotSupported",
		"SysctlForbidden", "TopologyAffinityError", "UnexpectedAdmissionError", "UnexpectedPredicateFailureType", "UnknownReason", "VolumeAttachmentLimitExceeded",
		"node(s) had taints that the pod didn't tolerate",
	}
	switch {
	case slices.Contains(known, reason):
	case strings.HasPrefix(reason, "OutOf"):
		reason = "OutOfExtendedResources"
	default:
		reason = "Other"
	}
	m.rejections.WithLabelValues(reason).Inc()
}

// Admitted counts a pod that the node admitted.
func (m *Pods) Admitted(pod *corev1.Pod) {
	has := func(c corev1.Container) bool { return len(c.Resources.Requests) > 0 || len(c.Resources.Limits) > 0 }
	whole := resources.IsPodLevelResourcesSet(pod)
	parts := slices.ContainsFunc(pod.Spec.Containers, has) || slices.ContainsFunc(pod.Spec.InitContainers, has)
	mode := ""
	switch {
	case whole && parts:
		mode = "pod_and_container_level"
	case whole:
		mode = "pod_level"
	case parts:
		mode = "container_level"
	}
	m.admissions.WithLabelValues(mode, strings.ToLower(string(lifecycle.ClassOf(pod)))).Inc()
}

// A Starting has the times to subtract from the duration of a pod's start. It is empty for a pod that had begun before
// the agent saw it.
type Starting struct {
	counts bool // its start is measured: it began under this agent, and was schedulable when it was created
	pulls  []span
	done   bool // its start has been measured
}

// A span is a time from one moment to another.
type span struct{ from, to time.Time }

// Pulled records the time in which an image was pulled for the pod.
func (s *Starting) Pulled(from, to time.Time) { s.pulls = append(s.pulls, span{from, to}) }

// NewStarting returns the state of a pod that the agent sees for the first time.
func NewStarting(pod *corev1.Pod) Starting {
	return Starting{counts: pod.Status.StartTime.IsZero() && schedulable(pod) && len(pod.Spec.Containers) > 0}
}

// schedulable reports whether no scheduler has found a pod unschedulable, as far as its status shows.
func schedulable(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

// Reported measures the start of a pod when the API server has the status in which all its containers run.
func (m *Pods) Reported(s *Starting, pod *corev1.Pod, status *corev1.PodStatus, now time.Time) {
	if !s.counts || s.done || len(status.ContainerStatuses) < len(pod.Spec.Containers) {
		return
	}
	if slices.ContainsFunc(status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running == nil }) {
		return
	}
	s.done = true
	took := max(0, now.Sub(pod.CreationTimestamp.Time))
	m.startTotal.Observe(took.Seconds())
	if stateful(pod) {
		return
	}
	took = max(0, took-covered(s.pulls)-initTime(pod, status))
	m.startSLI.Observe(took.Seconds())
	if !pod.Spec.HostNetwork {
		m.first.Do(func() { m.firstSLI.Set(took.Seconds()) })
	}
}

// stateful reports whether a pod has a volume that outlives it, or is not made by the node, as the objective for the
// start of pods defines it.
func stateful(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Projected == nil
	})
}

// covered returns how much time is in at least one of the spans.
func covered(spans []span) (sum time.Duration) {
	spans = sorting.Sorted(slices.Values(spans), func(a, b span) int { return a.from.Compare(b.from) })
	var end time.Time
	for _, s := range spans {
		if s.from.Before(end) {
			s.from = end
		}
		if s.to.After(s.from) {
			sum += s.to.Sub(s.from)
			end = s.to
		}
	}
	return sum
}

// initTime returns how long the init containers of a pod ran that have ended.
func initTime(pod *corev1.Pod, s *corev1.PodStatus) (sum time.Duration) {
	for i := range s.InitContainerStatuses {
		c := &s.InitContainerStatuses[i]
		spec, _ := lifecycle.Spec(pod, c.Name)
		if t := c.State.Terminated; t != nil && spec != nil && !lifecycle.IsSidecar(spec) {
			sum += max(0, t.FinishedAt.Sub(t.StartedAt.Time))
		}
	}
	return sum
}
