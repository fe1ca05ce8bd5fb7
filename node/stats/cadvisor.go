package stats

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// A Machine is the hardware and the system in /metrics/cadvisor.
type Machine struct {
	Info                    corev1.NodeSystemInfo
	Processors              int
	PhysicalCores, Sockets  int // 0 if not known
	Memory, Swap            uint64
	FileSystem, AgentNumber string // the device of the node's file system, and the version of the agent
}

// sizeOfSubject is about how many bytes the samples of a container take.
const sizeOfSubject = 8 << 10

// cpuPeriod is the period of CPU quotas, in microseconds.
const cpuPeriod = 100_000

// A subject is something with samples: the node, a pod or a container.
type subject struct {
	labels    string // without braces
	container string // the id; "" if it is not a container
	cpu       *statsapi.CPUStats
	memory    *statsapi.MemoryStats
	swap      *statsapi.SwapStats
	io        *statsapi.IOStats
	fs        *statsapi.FsStats
	network   *statsapi.NetworkStats
	processes *statsapi.ProcessStats
	started   metav1.Time
	spec      *corev1.ResourceRequirements // of containers
}

// Cadvisor returns the samples of a summary with file systems, in the text format of Prometheus, under the names and with
// the labels of cAdvisor: container, id, image, name, namespace and pod. Samples of a pod as a whole, among them those of its
// network, have an empty container; those of the node have the id "/". The path in id is the one that upstream's kubelet
// gives a container. Metrics that a summary does not have come from the container runtime, and values that this does not have either are
// left out. If the summary is nil, because measuring failed,
// the only metrics are those of the machine and the ones about that.
func Cadvisor(s *statsapi.Summary, pods []Pod, m Machine, r RuntimeMetrics) []byte {
	var w metricWriter
	failed := 1.0
	if s != nil {
		failed = 0
		all := subjects(s, pods)
		w.Grow(len(all) * sizeOfSubject)
		w.usage(all, m)
		w.ofRuntime(all, r)
	}
	w.machine(m)
	for _, name := range []string{"container_scrape_error", "machine_scrape_error"} {
		w.begin(name, "gauge", "1 if the values could not be measured, otherwise 0")
		w.sample(name, "", failed, metav1.Time{})
	}
	return w.Bytes()
}

func subjects(s *statsapi.Summary, pods []Pod) []subject {
	byUID := make(map[types.UID]*corev1.Pod, len(pods))
	for _, p := range pods {
		byUID[p.UID] = p.Pod
	}
	all := []subject{{
		labels: subjectLabels("", "/", "", "", "", ""), cpu: s.Node.CPU, memory: s.Node.Memory, swap: s.Node.Swap, io: s.Node.IO, fs: s.Node.Fs,
		network: s.Node.Network, started: s.Node.StartTime,
	}}
	for i := range s.Pods {
		p := &s.Pods[i]
		pod := byUID[types.UID(p.PodRef.UID)]
		if pod == nil {
			continue
		}
		id := cgroupOf(pod)
		all = append(all, subject{
			labels: subjectLabels("", id, "", "", p.PodRef.Namespace, p.PodRef.Name), cpu: p.CPU, memory: p.Memory, swap: p.Swap, io: p.IO,
			network: p.Network, processes: p.ProcessStats, started: p.StartTime,
		})
		for j := range p.Containers {
			all = append(all, containerSubject(pod, id, &p.Containers[j]))
		}
	}
	return all
}

func containerSubject(pod *corev1.Pod, cgroup string, c *statsapi.ContainerStats) subject {
	out := subject{cpu: c.CPU, memory: c.Memory, swap: c.Swap, io: c.IO, fs: c.Rootfs, started: c.StartTime}
	name, image := "", ""
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == c.Name {
				_, name, _ = strings.Cut(list[i].ContainerID, "://")
				image = list[i].Image
			}
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == c.Name {
				out.spec = &list[i].Resources
			}
		}
	}
	out.container = name
	out.labels = subjectLabels(c.Name, cgroup+"/"+name, image, name, pod.Namespace, pod.Name)
	return out
}

// cgroupOf returns the path that upstream's kubelet gives the cgroup of a pod.
func cgroupOf(pod *corev1.Pod) string {
	switch pod.Status.QOSClass {
	case corev1.PodQOSBurstable, corev1.PodQOSBestEffort:
		return "/kubepods/" + strings.ToLower(string(pod.Status.QOSClass)) + "/pod" + string(pod.UID)
	}
	return "/kubepods/pod" + string(pod.UID)
}

func subjectLabels(container, id, image, name, namespace, pod string) string {
	text := labels("container", container, "id", id, "image", image, "name", name, "namespace", namespace, "pod", pod)
	return text[1 : len(text)-1]
}

// family writes a metric of all subjects that have it. More are further labels, which begin with a comma.
func (w *metricWriter) family(all []subject, name, kind, help, more string, get func(*subject) (*uint64, metav1.Time)) {
	w.scaled(all, name, kind, help, more, 1, get)
}

func (w *metricWriter) scaled(all []subject, name, kind, help, more string, unit float64, get func(*subject) (*uint64, metav1.Time)) {
	w.begin(name, kind, help)
	w.more(all, name, more, unit, get)
}

// more writes further samples of the metric that was begun last.
func (w *metricWriter) more(all []subject, name, more string, unit float64, get func(*subject) (*uint64, metav1.Time)) {
	for i := range all {
		if v, t := get(&all[i]); v != nil {
			w.labelled(name, all[i].labels, more, float64(*v)/unit, t)
		}
	}
}

func (w *metricWriter) usage(all []subject, m Machine) {
	second := float64(time.Second)
	w.scaled(all, ContainerCPU, "counter", "CPU time that was used, in seconds of one core", `,cpu="total"`, second, func(s *subject) (*uint64, metav1.Time) {
		if s.cpu == nil {
			return nil, metav1.Time{}
		}
		return s.cpu.UsageCoreNanoSeconds, s.cpu.Time
	})
	ofMemory := func(get func(*statsapi.MemoryStats) *uint64) func(*subject) (*uint64, metav1.Time) {
		return func(s *subject) (*uint64, metav1.Time) {
			if s.memory == nil {
				return nil, metav1.Time{}
			}
			return get(s.memory), s.memory.Time
		}
	}
	w.family(all, "container_memory_usage_bytes", "gauge", "Memory in use, with all caches", "", ofMemory(func(m *statsapi.MemoryStats) *uint64 { return m.UsageBytes }))
	w.family(all, ContainerMemory, "gauge", "Working set in bytes", "", ofMemory(func(m *statsapi.MemoryStats) *uint64 { return m.WorkingSetBytes }))
	w.family(all, "container_memory_rss", "gauge", "Anonymous memory in bytes", "", ofMemory(func(m *statsapi.MemoryStats) *uint64 { return m.RSSBytes }))
	w.family(all, "container_memory_failures_total", "counter", "Page faults", `,failure_type="pgfault",scope="hierarchy"`, ofMemory(func(m *statsapi.MemoryStats) *uint64 { return m.PageFaults }))
	w.more(all, "container_memory_failures_total", `,failure_type="pgmajfault",scope="hierarchy"`, 1, ofMemory(func(m *statsapi.MemoryStats) *uint64 { return m.MajorPageFaults }))
	w.family(all, "container_memory_swap", "gauge", "Swap in use in bytes", "", func(s *subject) (*uint64, metav1.Time) {
		if s.swap == nil {
			return nil, metav1.Time{}
		}
		return s.swap.SwapUsageBytes, s.swap.Time
	})
	w.family(all, "container_processes", "gauge", "Processes", "", func(s *subject) (*uint64, metav1.Time) {
		if s.processes == nil {
			return nil, metav1.Time{}
		}
		return s.processes.ProcessCount, metav1.Time{}
	})
	w.begin(ContainerStart, "gauge", "When it was started, in seconds since 1970")
	for i := range all {
		if t := all[i].started; t.Unix() > 0 {
			w.labelled(ContainerStart, all[i].labels, "", float64(t.UnixNano())/second, metav1.Time{})
		}
	}
	w.begin("container_last_seen", "gauge", "When it was measured last, in seconds since 1970")
	for i := range all {
		if c := all[i].cpu; c != nil {
			w.labelled("container_last_seen", all[i].labels, "", float64(c.Time.Unix()), metav1.Time{})
		}
	}
	w.fileSystems(all, m.FileSystem)
	w.networks(all)
	w.pressures(all)
	w.specs(all)
}

// RuntimeMetrics are the metrics that a container runtime has under cadvisor's names.
type RuntimeMetrics struct {
	Descriptors []*cri.MetricDescriptor
	Pods        []*cri.PodSandboxMetrics
}

// subjectKeys are the labels that say which container a value is of.
var subjectKeys = []string{"container", "id", "image", "name", "namespace", "pod"}

// ofRuntime writes the metrics of containers that were not written yet.
func (w *metricWriter) ofRuntime(all []subject, r RuntimeMetrics) {
	type value struct {
		of     *subject
		metric *cri.Metric
	}
	containers := map[string]*subject{}
	for i := range all {
		if id := all[i].container; id != "" {
			containers[id] = &all[i]
		}
	}
	values := map[string][]value{}
	for _, p := range r.Pods {
		for _, c := range p.GetContainerMetrics() {
			of := containers[c.GetContainerId()]
			if of == nil {
				continue
			}
			for _, m := range c.GetMetrics() {
				values[m.GetName()] = append(values[m.GetName()], value{of, m})
			}
		}
	}
	for _, d := range r.Descriptors {
		found := values[d.GetName()]
		if w.begun[d.GetName()] || len(found) == 0 {
			continue
		}
		kind := "gauge"
		if found[0].metric.GetMetricType() == cri.MetricType_COUNTER {
			kind = "counter"
		}
		w.begin(d.GetName(), kind, d.GetHelp())
		for _, v := range found {
			var more strings.Builder
			for i, key := range d.GetLabelKeys() {
				if texts := v.metric.GetLabelValues(); !slices.Contains(subjectKeys, key) && i < len(texts) {
					more.WriteString("," + key + `="` + escaped(texts[i]) + `"`)
				}
			}
			at := metav1.Time{}
			if t := v.metric.GetTimestamp(); t != 0 {
				at = metav1.NewTime(time.Unix(0, t))
			}
			w.labelled(d.GetName(), v.of.labels, more.String(), float64(v.metric.GetValue().GetValue()), at)
		}
	}
}

func (w *metricWriter) fileSystems(all []subject, device string) {
	more := `,device="` + escaped(device) + `"`
	for _, f := range []struct {
		name, help string
		get        func(*statsapi.FsStats) *uint64
	}{
		{"container_fs_usage_bytes", "Bytes that are used on the file system", func(f *statsapi.FsStats) *uint64 { return f.UsedBytes }},
		{"container_fs_limit_bytes", "Bytes that can be used on the file system", func(f *statsapi.FsStats) *uint64 { return f.CapacityBytes }},
		{"container_fs_inodes_free", "Inodes that are free on the file system", func(f *statsapi.FsStats) *uint64 { return f.InodesFree }},
		{"container_fs_inodes_total", "Inodes of the file system", func(f *statsapi.FsStats) *uint64 { return f.Inodes }},
	} {
		w.family(all, f.name, "gauge", f.help, more, func(s *subject) (*uint64, metav1.Time) {
			if s.fs == nil {
				return nil, metav1.Time{}
			}
			return f.get(s.fs), s.fs.Time
		})
	}
}

func (w *metricWriter) networks(all []subject) {
	for _, f := range []struct {
		name, help string
		get        func(*statsapi.InterfaceStats) *uint64
	}{
		{"container_network_receive_bytes_total", "Bytes received", func(i *statsapi.InterfaceStats) *uint64 { return i.RxBytes }},
		{"container_network_receive_errors_total", "Errors while receiving", func(i *statsapi.InterfaceStats) *uint64 { return i.RxErrors }},
		{"container_network_transmit_bytes_total", "Bytes sent", func(i *statsapi.InterfaceStats) *uint64 { return i.TxBytes }},
		{"container_network_transmit_errors_total", "Errors while sending", func(i *statsapi.InterfaceStats) *uint64 { return i.TxErrors }},
	} {
		w.begin(f.name, "counter", f.help)
		for i := range all {
			n := all[i].network
			if n == nil {
				continue
			}
			for j := range n.Interfaces {
				if v := f.get(&n.Interfaces[j]); v != nil {
					w.labelled(f.name, all[i].labels, `,interface="`+escaped(n.Interfaces[j].Name)+`"`, float64(*v), n.Time)
				}
			}
		}
	}
}

func (w *metricWriter) pressures(all []subject) {
	const micro = 1e6 // PSI totals are in microseconds
	for _, f := range []struct {
		name, help string
		of         func(*subject) (*statsapi.PSIStats, metav1.Time)
	}{
		{"cpu", "CPU time", func(s *subject) (*statsapi.PSIStats, metav1.Time) {
			if s.cpu == nil {
				return nil, metav1.Time{}
			}
			return s.cpu.PSI, s.cpu.Time
		}},
		{"memory", "memory", func(s *subject) (*statsapi.PSIStats, metav1.Time) {
			if s.memory == nil {
				return nil, metav1.Time{}
			}
			return s.memory.PSI, s.memory.Time
		}},
		{"io", "input and output", func(s *subject) (*statsapi.PSIStats, metav1.Time) {
			if s.io == nil {
				return nil, metav1.Time{}
			}
			return s.io.PSI, s.io.Time
		}},
	} {
		name := "container_pressure_" + f.name
		w.scaled(all, name+"_stalled_seconds_total", "counter", "Seconds in which all processes waited for "+f.help, "", micro, func(s *subject) (*uint64, metav1.Time) {
			if p, t := f.of(s); p != nil {
				return &p.Full.Total, t
			}
			return nil, metav1.Time{}
		})
		w.scaled(all, name+"_waiting_seconds_total", "counter", "Seconds in which a process waited for "+f.help, "", micro, func(s *subject) (*uint64, metav1.Time) {
			if p, t := f.of(s); p != nil {
				return &p.Some.Total, t
			}
			return nil, metav1.Time{}
		})
	}
}

// specs writes what containers may use.
func (w *metricWriter) specs(all []subject) {
	for _, f := range []struct {
		name, help string
		get        func(*corev1.ResourceRequirements) (float64, bool)
	}{
		{"container_spec_cpu_period", "Period of the CPU quota in microseconds", func(*corev1.ResourceRequirements) (float64, bool) { return cpuPeriod, true }},
		{"container_spec_cpu_quota", "CPU quota in microseconds", func(r *corev1.ResourceRequirements) (float64, bool) {
			limit, has := r.Limits[corev1.ResourceCPU]
			return float64(limit.MilliValue()) * cpuPeriod / 1000, has
		}},
		{"container_spec_cpu_shares", "CPU shares", func(r *corev1.ResourceRequirements) (float64, bool) {
			return float64(max(2, r.Requests.Cpu().MilliValue()*1024/1000)), true
		}},
		{"container_spec_memory_limit_bytes", "Limit of memory; 0 means none", func(r *corev1.ResourceRequirements) (float64, bool) { return float64(r.Limits.Memory().Value()), true }},
		{"container_spec_memory_reservation_limit_bytes", "Reserved memory; 0 means none", func(*corev1.ResourceRequirements) (float64, bool) { return 0, true }},
	} {
		w.begin(f.name, "gauge", f.help)
		for i := range all {
			if all[i].spec == nil {
				continue
			}
			if v, ok := f.get(all[i].spec); ok {
				w.labelled(f.name, all[i].labels, "", v, metav1.Time{})
			}
		}
	}
	w.family(all, "container_spec_memory_swap_limit_bytes", "gauge", "Limit of swap", "", func(s *subject) (*uint64, metav1.Time) {
		if s.spec == nil || s.swap == nil || s.swap.SwapAvailableBytes == nil {
			return nil, metav1.Time{}
		}
		return new(*s.swap.SwapAvailableBytes + deref(s.swap.SwapUsageBytes)), metav1.Time{}
	})
}

func (w *metricWriter) machine(m Machine) {
	ids := labels("boot_id", m.Info.BootID, "machine_id", m.Info.MachineID, "system_uuid", m.Info.SystemUUID)
	for _, f := range []struct {
		name, help string
		value      uint64
	}{
		{"machine_cpu_cores", "Processors", uint64(m.Processors)},
		{"machine_cpu_physical_cores", "Physical cores", uint64(m.PhysicalCores)},
		{"machine_cpu_sockets", "Sockets of processors", uint64(m.Sockets)},
		{"machine_memory_bytes", "Memory", m.Memory},
		{"machine_swap_bytes", "Swap", m.Swap},
	} {
		if f.value == 0 && f.name != "machine_swap_bytes" {
			continue
		}
		w.begin(f.name, "gauge", f.help)
		w.sample(f.name, ids, float64(f.value), metav1.Time{})
	}
	w.begin("cadvisor_version_info", "gauge", "The system and the version of the agent; the value is 1")
	w.sample("cadvisor_version_info", labels("cadvisorRevision", "", "cadvisorVersion", m.AgentNumber, "dockerVersion", "",
		"kernelVersion", m.Info.KernelVersion, "osVersion", m.Info.OSImage), 1, metav1.Time{})
}

// Sockets returns how many sockets and physical cores /proc/cpuinfo lists; 0 and 0 if it does not say.
func Sockets() (sockets, cores int) { return socketsOf(read("/proc/cpuinfo")) }

func socketsOf(info string) (sockets, cores int) {
	all, pairs := map[string]bool{}, map[string]bool{}
	socket := ""
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "physical id":
			socket = value
			all[socket] = true
		case "core id":
			if _, err := strconv.Atoi(value); err == nil {
				pairs[socket+"/"+value] = true
			}
		}
	}
	return len(all), len(pairs)
}
