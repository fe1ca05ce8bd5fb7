package runtime

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/runtime/container"
)

// baseLabels are those of every metric, with cadvisor's names: id is the cgroup and name the id of the container.
func baseLabels() []string { return []string{"container", "id", "image", "name", "namespace", "pod"} }

// A containerMetric is one metric of cadvisor about a container.
type containerMetric struct {
	name, help string
	kind       cri.MetricType
	labels     []string // beside the base ones
	values     func(c *measured) []sample
}

// measured is what is known of a running container when its metrics are taken.
type measured struct {
	record *container.Record
	usage  container.Usage
	disk   *cri.FilesystemUsage // nil if it can't be measured
}

// sample is one value of a metric, with the values of the labels beside the base ones.
type sample struct {
	labels []string
	value  uint64
}

func one(v uint64) []sample { return []sample{{value: v}} }

// given is a value that is left out if it is zero, which means not known.
func given(v uint64) []sample {
	if v == 0 {
		return nil
	}
	return one(v)
}

// limited is a value that only containers with a CPU limit have, as in cadvisor.
func (c *measured) limited(v uint64) []sample {
	if c.record.Spec.Resources.CPUQuota <= 0 {
		return nil
	}
	return one(v)
}

// byDevice returns a value of each block device that the container has used.
func byDevice(value func(*container.DeviceUsage) uint64) func(c *measured) []sample {
	return func(c *measured) []sample {
		var out []sample
		for i := range c.usage.Devices {
			d := &c.usage.Devices[i]
			out = append(out, sample{[]string{d.Name()}, value(d)})
		}
		return out
	}
}

// byOperation returns what the container has read from each block device and written to it.
func byOperation(c *measured) []sample {
	var out []sample
	for i := range c.usage.Devices {
		d := &c.usage.Devices[i]
		of := func(operation string, v uint64) sample {
			return sample{[]string{d.Name(), strconv.FormatUint(d.Major, 10), strconv.FormatUint(d.Minor, 10), operation}, v}
		}
		out = append(out, of("Read", d.ReadBytes), of("Write", d.WrittenBytes))
	}
	return out
}

const nanosecondsPerSecond = uint64(time.Second)

// containerMetrics are the metrics of a container. CRI has whole numbers only, so seconds are rounded down, as in
// other runtimes.
func containerMetrics() []containerMetric {
	const counter, gauge = cri.MetricType_COUNTER, cri.MetricType_GAUGE
	return []containerMetric{
		{"container_cpu_usage_seconds_total", "CPU time in seconds.", counter, nil, func(c *measured) []sample { return one(c.usage.CPU / nanosecondsPerSecond) }},
		{"container_cpu_user_seconds_total", "CPU time in user mode in seconds.", counter, nil, func(c *measured) []sample { return one(c.usage.CPUUser / nanosecondsPerSecond) }},
		{"container_cpu_system_seconds_total", "CPU time in the kernel in seconds.", counter, nil, func(c *measured) []sample { return one(c.usage.CPUSystem / nanosecondsPerSecond) }},
		{"container_cpu_cfs_periods_total", "Periods of the CPU limit that have passed.", counter, nil, func(c *measured) []sample { return c.limited(c.usage.Periods) }},
		{"container_cpu_cfs_throttled_periods_total", "Periods in which the container was throttled.", counter, nil, func(c *measured) []sample { return c.limited(c.usage.ThrottledPeriods) }},
		{"container_cpu_cfs_throttled_seconds_total", "Time for which the container was throttled.", counter, nil, func(c *measured) []sample { return c.limited(c.usage.ThrottledTime / nanosecondsPerSecond) }},
		{"container_memory_usage_bytes", "Memory in use, including what could be dropped.", gauge, nil, func(c *measured) []sample { return one(c.usage.Memory) }},
		{"container_memory_working_set_bytes", "Memory in use, without what could be dropped.", gauge, nil, func(c *measured) []sample { return one(c.usage.WorkingSet) }},
		{"container_memory_max_usage_bytes", "Largest memory use so far.", gauge, nil, func(c *measured) []sample { return given(c.usage.MaxMemory) }},
		{"container_memory_rss", "Anonymous memory in bytes.", gauge, nil, func(c *measured) []sample { return one(c.usage.RSS) }},
		{"container_memory_cache", "Page cache in bytes.", gauge, nil, func(c *measured) []sample { return one(c.usage.Cache) }},
		{"container_memory_mapped_file", "Mapped files in bytes.", gauge, nil, func(c *measured) []sample { return one(c.usage.MappedFile) }},
		{"container_memory_swap", "Swap in use in bytes.", gauge, nil, func(c *measured) []sample {
			if c.usage.Swap == nil {
				return nil
			}
			return one(c.usage.Swap.Used)
		}},
		{"container_memory_failcnt", "How often the memory limit was hit.", counter, nil, func(c *measured) []sample { return one(c.usage.LimitHits) }},
		{"container_memory_failures_total", "Page faults.", counter, []string{"failure_type", "scope"}, func(c *measured) []sample {
			return []sample{{[]string{"pgfault", "hierarchy"}, c.usage.PageFaults}, {[]string{"pgmajfault", "hierarchy"}, c.usage.MajorPageFaults}}
		}},
		{"container_oom_events_total", "Processes that were killed for want of memory.", counter, nil, func(c *measured) []sample { return one(uint64(c.usage.OOMKills)) }},
		{"container_processes", "Number of processes.", gauge, nil, func(c *measured) []sample { return given(c.usage.Processes) }},
		{"container_threads_max", "Limit of the number of threads; 0 means none.", gauge, nil, func(c *measured) []sample { return one(uint64(max(0, c.record.Spec.Resources.PidsLimit))) }},
		{"container_fs_usage_bytes", "Bytes in the writable layer.", gauge, []string{"device"}, func(c *measured) []sample {
			if c.disk == nil {
				return nil
			}
			return []sample{{[]string{c.disk.GetFsId().GetMountpoint()}, c.disk.GetUsedBytes().GetValue()}}
		}},
		{"container_fs_reads_bytes_total", "Bytes read from block devices.", counter, []string{"device"}, byDevice(func(d *container.DeviceUsage) uint64 { return d.ReadBytes })},
		{"container_fs_reads_total", "Reads from block devices.", counter, []string{"device"}, byDevice(func(d *container.DeviceUsage) uint64 { return d.Reads })},
		{"container_fs_writes_bytes_total", "Bytes written to block devices.", counter, []string{"device"}, byDevice(func(d *container.DeviceUsage) uint64 { return d.WrittenBytes })},
		{"container_fs_writes_total", "Writes to block devices.", counter, []string{"device"}, byDevice(func(d *container.DeviceUsage) uint64 { return d.Writes })},
		{"container_blkio_device_usage_total", "Bytes read from block devices and written to them.", counter, []string{"device", "major", "minor", "operation"}, byOperation},
		{"container_last_seen", "Time of this measurement, in seconds since 1970.", gauge, nil, func(c *measured) []sample { return one(uint64(c.usage.At.Unix())) }},
		{"container_start_time_seconds", "Time of the start, in seconds since 1970.", gauge, nil, func(c *measured) []sample { return one(uint64(c.record.Started.Unix())) }},
		{"container_spec_cpu_period", "CPU period in microseconds.", gauge, nil, func(c *measured) []sample { return given(c.record.Spec.Resources.CPUPeriod) }},
		{"container_spec_cpu_quota", "CPU quota in microseconds per period.", gauge, nil, func(c *measured) []sample { return given(uint64(max(0, c.record.Spec.Resources.CPUQuota))) }},
		{"container_spec_cpu_shares", "CPU shares.", gauge, nil, func(c *measured) []sample { return given(c.record.Spec.Resources.CPUShares) }},
		{"container_spec_memory_limit_bytes", "Memory limit; 0 means none.", gauge, nil, func(c *measured) []sample { return one(uint64(max(0, c.record.Spec.Resources.MemoryLimit))) }},
		{"container_spec_memory_swap_limit_bytes", "Limit of memory and swap together; 0 means none.", gauge, nil, func(c *measured) []sample { return one(uint64(max(0, c.record.Spec.Resources.SwapLimit))) }},
	}
}

// A networkMetric is one metric of cadvisor about the network of a pod.
type networkMetric struct {
	name, help string
	value      func(n *cri.NetworkInterfaceUsage) *cri.UInt64Value
}

func networkMetrics() []networkMetric {
	return []networkMetric{
		{"container_network_receive_bytes_total", "Bytes received.", (*cri.NetworkInterfaceUsage).GetRxBytes},
		{"container_network_receive_errors_total", "Errors of receiving.", (*cri.NetworkInterfaceUsage).GetRxErrors},
		{"container_network_transmit_bytes_total", "Bytes sent.", (*cri.NetworkInterfaceUsage).GetTxBytes},
		{"container_network_transmit_errors_total", "Errors of sending.", (*cri.NetworkInterfaceUsage).GetTxErrors},
	}
}

// ListMetricDescriptors implements CRI.
func (s *Server) ListMetricDescriptors(context.Context, *cri.ListMetricDescriptorsRequest) (*cri.ListMetricDescriptorsResponse, error) {
	res := &cri.ListMetricDescriptorsResponse{}
	add := func(name, help string, labels ...string) {
		res.Descriptors = append(res.Descriptors, &cri.MetricDescriptor{Name: name, Help: help, LabelKeys: append(baseLabels(), labels...)})
	}
	for _, m := range containerMetrics() {
		add(m.name, m.help, m.labels...)
	}
	for _, m := range networkMetrics() {
		add(m.name, m.help, "interface")
	}
	return res, nil
}

// layerAge is how old the sizes of writable layers may be in metrics: they are measured by reading directories.
const layerAge = time.Minute

// layerSizes remembers the sizes of writable layers for a while.
type layerSizes struct {
	mu    sync.Mutex
	known map[string]layerSize // guarded by mu; by the id of the container
}

type layerSize struct {
	at    time.Time
	usage *cri.FilesystemUsage
}

// get returns the size of a container's layer. It forgets sizes that are too old, and so the sizes of containers that are gone.
func (l *layerSizes) get(id string, now time.Time, measure func() *cri.FilesystemUsage) *cri.FilesystemUsage {
	l.mu.Lock()
	old, ok := l.known[id]
	l.mu.Unlock()
	if ok && now.Sub(old.at) < layerAge {
		return old.usage
	}
	usage := measure()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[string]layerSize{}
	}
	maps.DeleteFunc(l.known, func(_ string, s layerSize) bool { return now.Sub(s.at) >= layerAge })
	l.known[id] = layerSize{now, usage}
	return usage
}

// ListPodSandboxMetrics implements CRI, for the pods that are ready and their running containers.
func (s *Server) ListPodSandboxMetrics(context.Context, *cri.ListPodSandboxMetricsRequest) (*cri.ListPodSandboxMetricsResponse, error) {
	res := &cri.ListPodSandboxMetricsResponse{}
	containers := s.supervisor.List()
	for _, p := range s.listPods() {
		if r := p.snapshot(); r.Made && r.Ready {
			res.PodMetrics = append(res.PodMetrics, s.podMetrics(p, &r, containers))
		}
	}
	return res, nil
}

func (s *Server) podMetrics(p *pod, r *podRecord, containers []container.Record) *cri.PodSandboxMetrics {
	meta := p.config.GetMetadata()
	out := &cri.PodSandboxMetrics{PodSandboxId: r.ID}
	if r.Link != "" {
		usage := s.networkUsage(r.Link, 0).GetDefaultInterface()
		for _, m := range networkMetrics() {
			if v := m.value(usage); v != nil {
				labels := []string{"", r.Cgroup, "", r.ID, meta.GetNamespace(), meta.GetName(), usage.GetName()}
				out.Metrics = append(out.Metrics, &cri.Metric{Name: m.name, MetricType: cri.MetricType_COUNTER, LabelValues: labels, Value: v})
			}
		}
	}
	for i := range containers {
		c := &containers[i]
		if c.Pod != r.ID || c.State() != container.Running || c.ID == r.Pause {
			continue
		}
		if metrics := s.metricsOf(c, meta); metrics != nil {
			out.ContainerMetrics = append(out.ContainerMetrics, &cri.ContainerMetrics{ContainerId: c.ID, Metrics: metrics})
		}
	}
	return out
}

// metricsOf returns the metrics of a running container; nil if it has just ended.
func (s *Server) metricsOf(c *container.Record, pod *cri.PodSandboxMetadata) []*cri.Metric {
	usage, err := s.supervisor.Stats(c.ID)
	cc := s.containerConfig(c.ID)
	if err != nil || cc == nil {
		return nil
	}
	m := &measured{record: c, usage: usage, disk: s.layers.get(c.ID, usage.At, func() *cri.FilesystemUsage {
		stats := &cri.ContainerStats{Attributes: &cri.ContainerAttributes{Id: c.ID}}
		s.addWritableLayer(stats)
		return stats.GetWritableLayer()
	})}
	labels := []string{
		cc.config.GetMetadata().GetName(), c.Spec.Cgroup, cc.config.GetImage().GetUserSpecifiedImage(), c.ID, pod.GetNamespace(), pod.GetName(),
	}
	var out []*cri.Metric
	for _, metric := range containerMetrics() {
		for _, v := range metric.values(m) {
			out = append(out, &cri.Metric{
				Name: metric.name, MetricType: metric.kind, LabelValues: append(labels[:len(labels):len(labels)], v.labels...), Value: counted(v.value),
			})
		}
	}
	return out
}
