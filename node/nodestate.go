package node

import (
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/metrics"
	"github.com/sampan-io/sampan/node/podcgroup"
	"github.com/sampan-io/sampan/node/static"
	"github.com/sampan-io/sampan/node/stats"
	"github.com/sampan-io/sampan/node/volumes"
)

// nodeState collects what a node is and what runs on it, when a client asks.
type nodeState struct{ n *Node }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(metrics.Subsystem+"_"+name, help, labels, nil)
}

var (
	descName       = desc("node_name", "The name of the node; the value is 1.", "node")
	descPods       = desc("running_pods", "Pods with a sandbox that runs.")
	descContainers = desc("running_containers", "Containers in the runtime, by state.", "container_state")
	descDesired    = desc("desired_pods", "Pods that the node is to run.", "static")
	descActive     = desc("active_pods", "Pods that count when another one is admitted.", "static")
	descMirrors    = desc("mirror_pods", "Mirror pods of static pods in the API server.")
	descWorking    = desc("working_pods", "Pods that the agent works on, by what it does and where they come from.", "lifecycle", "config", "static")
	descEphemeral  = desc("managed_ephemeral_containers", "Ephemeral containers of the pods of the node.")
	descPending    = desc("pod_pending_resizes", "Pods whose resize waits.", "reason", "priority_bucket")
	descResizing   = desc("pod_in_progress_resizes", "Pods whose resize was granted and is being applied.")
	descLogs       = desc("container_log_filesystem_used_bytes", "Space that the logs of a container take.", "uid", "namespace", "pod", "container")
	descIntents    = desc("imagemanager_ondisk_pullintents", "Records of pulls that have begun.")
	descPulled     = desc("imagemanager_ondisk_pulledrecords", "Records of images that were pulled.")
	descCredential = desc("podcertificate_states", "Certificates in volumes of pods.", "signer_name", "state")
	descCgroup     = desc("cgroup_version", "The version of cgroups on the node.")
	descTotal      = prometheus.NewDesc("volume_manager_total_volumes", "Volumes of pods: wanted ones and mounted ones.", []string{"plugin_name", "state"}, nil)
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
	descBuild     = prometheus.NewDesc("kubernetes_build_info", "The version of the agent; the value is 1.",
		[]string{"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform"}, nil)
)

// Describe implements [prometheus.Collector].
func (nodeState) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descName, descPods, descContainers, descDesired, descActive, descMirrors, descWorking, descEphemeral, descPending, descResizing, descLogs,
		descIntents, descPulled, descCredential, descCgroup, descTotal, descMemoryMin, descMemoryLow, descBuild,
	} {
		to <- d
	}
	for _, d := range descVolumes {
		to <- d
	}
}

// A gaugeFunc reports one value.
type gaugeFunc func(d *prometheus.Desc, value float64, labels ...string)

// count reports counts by their labels.
func (gauge gaugeFunc) count(d *prometheus.Desc, counts map[[3]string]int, labels int) {
	for key, n := range counts {
		gauge(d, float64(n), key[:labels]...)
	}
}

// Collect implements [prometheus.Collector].
func (s nodeState) Collect(to chan<- prometheus.Metric) {
	gauge := gaugeFunc(func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	})
	gauge(descName, 1, s.n.opts.Name)
	gauge(descBuild, 1, buildInfo(s.n.opts.Version)...)
	version := 1
	if podcgroup.Unified() {
		version = 2
	}
	gauge(descCgroup, float64(version))
	var hard, soft int64
	if s.n.isolation.cgroups != nil {
		hard, soft = s.n.isolation.cgroups.Protected()
	}
	gauge(descMemoryMin, float64(hard))
	gauge(descMemoryLow, float64(soft))
	s.n.workers.mu.Lock()
	mirrors := len(s.n.workers.statics.mirrors)
	s.n.workers.mu.Unlock()
	gauge(descMirrors, float64(mirrors))
	if pulling, pulled, ok := s.n.images.RecordCounts(); ok {
		gauge(descIntents, float64(pulling))
		gauge(descPulled, float64(pulled))
	}
	s.pods(gauge)
	s.volumes(gauge)
}

// buildInfo returns the labels of the version of the agent. What the version does not show is empty.
func buildInfo(version string) []string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	for len(parts) < 2 {
		parts = append(parts, "")
	}
	return []string{parts[0], parts[1], version, "", "", "", runtime.Version(), runtime.Compiler, runtime.GOOS + "/" + runtime.GOARCH}
}

// A tally counts pods by labels.
type tally struct {
	running, ephemeral, resizing int

	containers, desired, active, working, pending, volumes, credentials map[[3]string]int
}

// newTally returns a tally with a 0 for each combination of labels that upstream's kubelet always reports.
func newTally() *tally {
	t := &tally{
		containers: map[[3]string]int{{"created"}: 0, {"exited"}: 0, {"running"}: 0, {"unknown"}: 0},
		desired:    map[[3]string]int{{""}: 0, {"true"}: 0}, active: map[[3]string]int{{""}: 0, {"true"}: 0},
		working: map[[3]string]int{}, pending: map[[3]string]int{}, volumes: map[[3]string]int{}, credentials: map[[3]string]int{},
	}
	for _, life := range []string{workSync, workTerminating, workTerminated} {
		for _, from := range [][2]string{{"desired", ""}, {"desired", "true"}, {"orphan", ""}, {"orphan", "true"}, {"runtime_only", metrics.Unknown}} {
			t.working[[3]string{life, from[0], from[1]}] = 0
		}
	}
	return t
}

// What the agent does with a pod, as metrics name it.
const (
	workSync        = "sync"
	workTerminating = "terminating"
	workTerminated  = "terminated"
)

// add counts a pod. Gone says that its source does not have it any more.
func (t *tally) add(state *lifecycle.Observed, gone bool) {
	pod, runs := state.Pod, false
	for i := range state.Containers {
		c := &state.Containers[i]
		runs = runs || c.State == lifecycle.Running
		t.containers[[3]string{stateName(c.State)}]++
	}
	if runs {
		t.running++
	}
	label := ""
	if static.Is(pod) {
		label = "true"
	}
	from := [2]string{"desired", label}
	switch {
	case len(pod.Spec.Containers) == 0:
		from = [2]string{"runtime_only", metrics.Unknown}
	case gone:
		from = [2]string{"orphan", label}
	default:
		t.desired[[3]string{label}]++
		if !podstate.Finished(pod) {
			t.active[[3]string{label}]++
		}
	}
	life := workSync
	if ends := gone || pod.DeletionTimestamp != nil || podstate.Finished(pod); ends && runs {
		life = workTerminating
	} else if ends {
		life = workTerminated
	}
	t.working[[3]string{life, from[0], from[1]}]++
	t.ephemeral += len(pod.Spec.EphemeralContainers)
	for i := range pod.Status.Conditions {
		switch c := &pod.Status.Conditions[i]; {
		case c.Status != corev1.ConditionTrue:
		case c.Type == corev1.PodResizePending:
			t.pending[[3]string{strings.ToLower(c.Reason), metrics.PriorityBucket(pod)}]++
		case c.Type == corev1.PodResizeInProgress:
			t.resizing++
		}
	}
}

// pods collects what the workers see.
func (s nodeState) pods(gauge gaugeFunc) {
	t := newTally()
	for _, w := range s.n.allWorkers() {
		state, _ := w.Status()
		if state.Over {
			continue
		}
		t.add(&state, w.leaving())
		wanted := !podstate.Finished(state.Pod)
		for i := range state.Pod.Spec.Volumes {
			plugin := s.n.metrics.Volumes.Plugin(state.Pod.UID, &state.Pod.Spec.Volumes[i])
			if wanted {
				t.volumes[[3]string{plugin, "desired_state_of_world"}]++
			}
			if state.Mounted && w.volumes.mounted.Load() {
				t.volumes[[3]string{plugin, "actual_state_of_world"}]++
			}
		}
		s.logs(gauge, state.Pod)
		s.n.files.CertificateStates(state.Pod, time.Now(), func(signer, state string) { t.credentials[[3]string{signer, state}]++ })
	}
	gauge(descPods, float64(t.running))
	gauge(descEphemeral, float64(t.ephemeral))
	gauge(descResizing, float64(t.resizing))
	gauge.count(descContainers, t.containers, 1)
	gauge.count(descDesired, t.desired, 1)
	gauge.count(descActive, t.active, 1)
	gauge.count(descWorking, t.working, 3)
	gauge.count(descPending, t.pending, 2)
	gauge.count(descTotal, t.volumes, 2)
	gauge.count(descCredential, t.credentials, 2)
}

// logs collects the sizes of the logs of a pod.
func (s nodeState) logs(gauge gaugeFunc, pod *corev1.Pod) {
	dir := s.n.logs(pod)
	if dir == "" || pod.Name == "" {
		return
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			space := stats.OfLogs(filepath.Join(dir, list[i].Name))
			gauge(descLogs, float64(space.Bytes), string(pod.UID), pod.Namespace, pod.Name, list[i].Name)
		}
	}
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
func (s nodeState) volumes(gauge gaugeFunc) {
	seen := map[string]bool{}
	ctx, cancel := context.WithTimeout(context.Background(), volumes.MeasureLimit) //nolint:forbidigo // a collector gets no context
	defer cancel()
	for _, w := range s.n.allWorkers() {
		state, _ := w.Status()
		if state.Over {
			continue
		}
		for _, v := range s.n.files.Claimed(ctx, state.Pod) {
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
