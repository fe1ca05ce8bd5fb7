package stats

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/node/crispec"
)

// A Pod is a pod of the node, and when its running containers were started, by their IDs in the runtime.
type Pod struct {
	*corev1.Pod
	Started map[string]time.Time
}

// Measured is what a node has measured.
type Measured struct {
	Node      statsapi.NodeStats
	Pods      []Pod
	Sandboxes []*cri.PodSandboxStats // of the runtime, in any order

	// Layers are the stats of containers with their writable layers; none in a summary without file systems.
	Layers []*cri.ContainerStats
	// Process is the agent itself, with nil values if they are not known.
	Process statsapi.ContainerStats
	// Files are the volumes and logs of pods; none in a summary without file systems.
	Files map[types.UID]*Files
}

// Files are the volumes and logs of a pod.
type Files struct {
	Volumes   []statsapi.VolumeStats
	Logs      map[string]*statsapi.FsStats // by container
	Ephemeral Space                        // of logs and of emptyDir volumes on disk
}

// Summarize returns the summary of a node: its pods with a sandbox in the runtime, by namespace and name, and the containers in
// them that run.
func Summarize(m Measured) *statsapi.Summary {
	pods := map[string]Pod{}
	for _, p := range m.Pods {
		pods[string(p.UID)] = p
	}
	layers := map[string]*cri.FilesystemUsage{}
	for _, c := range m.Layers {
		layers[c.GetAttributes().GetId()] = c.GetWritableLayer()
	}
	newest := map[string]*cri.PodSandboxStats{}
	for _, s := range m.Sandboxes {
		uid := uidOf(s)
		if old := newest[uid]; old == nil || old.GetAttributes().GetMetadata().GetAttempt() < s.GetAttributes().GetMetadata().GetAttempt() {
			newest[uid] = s
		}
	}
	out := &statsapi.Summary{Node: m.Node, Pods: []statsapi.PodStats{}}
	for uid, s := range newest {
		if p, ok := pods[uid]; ok {
			pod := podStats(p, s.GetLinux(), layers, m.Node.Fs)
			if f := m.Files[p.UID]; f != nil {
				f.addTo(&pod, m.Node.Fs)
			}
			out.Pods = append(out.Pods, pod)
		}
	}
	out.Node.SystemContainers = systemContainers(m, out.Pods)
	sorting.Slice(out.Pods, func(a, b statsapi.PodStats) int {
		return strings.Compare(a.PodRef.Namespace+"/"+a.PodRef.Name+"/"+a.PodRef.UID, b.PodRef.Namespace+"/"+b.PodRef.Name+"/"+b.PodRef.UID)
	})
	return out
}

// systemContainers returns the parts of the node's usage under upstream's names: the agent, and all pods together.
func systemContainers(m Measured, pods []statsapi.PodStats) []statsapi.ContainerStats {
	if m.Process.CPU == nil {
		return nil
	}
	agent := m.Process
	agent.Name = statsapi.SystemContainerKubelet
	if agent.StartTime.IsZero() {
		agent.StartTime = m.Node.StartTime
	}
	all := statsapi.ContainerStats{
		Name: statsapi.SystemContainerPods, StartTime: m.Node.StartTime,
		CPU:    &statsapi.CPUStats{Time: m.Process.CPU.Time, UsageCoreNanoSeconds: new(uint64)},
		Memory: &statsapi.MemoryStats{Time: m.Process.CPU.Time, UsageBytes: new(uint64), WorkingSetBytes: new(uint64), RSSBytes: new(uint64)},
	}
	for i := range pods {
		if c := pods[i].CPU; c != nil {
			*all.CPU.UsageCoreNanoSeconds += deref(c.UsageCoreNanoSeconds)
		}
		if of := pods[i].Memory; of != nil {
			*all.Memory.UsageBytes += deref(of.UsageBytes)
			*all.Memory.WorkingSetBytes += deref(of.WorkingSetBytes)
			*all.Memory.RSSBytes += deref(of.RSSBytes)
		}
	}
	return []statsapi.ContainerStats{agent, all}
}

// addTo adds volumes, logs and the sum of ephemeral storage: logs, emptyDir volumes on disk and writable layers.
func (f *Files) addTo(p *statsapi.PodStats, fs *statsapi.FsStats) {
	p.VolumeStats = f.Volumes
	sum, at := f.Ephemeral, p.StartTime.Time
	for i := range p.Containers {
		c := &p.Containers[i]
		c.Logs = f.Logs[c.Name]
		if c.Logs != nil {
			at = c.Logs.Time.Time
		}
		if r := c.Rootfs; r != nil {
			sum.Bytes += deref(r.UsedBytes)
			sum.Inodes += deref(r.InodesUsed)
		}
	}
	p.EphemeralStorage = sum.On(fs, at)
}

func deref(v *uint64) uint64 {
	if v == nil {
		return 0
	}
	return *v
}

// swap returns the use of swap; nil if the runtime does not say.
func swap(s *cri.SwapUsage) *statsapi.SwapStats {
	if s == nil {
		return nil
	}
	return &statsapi.SwapStats{Time: at(s.GetTimestamp()), SwapAvailableBytes: value(s.GetSwapAvailableBytes()), SwapUsageBytes: value(s.GetSwapUsageBytes())}
}

// addSwap adds the swap of a container to that of its pod: CRI has none of pods. The swap that is available to the pod is known if all
// containers have a limit.
func addSwap(pod, c *statsapi.SwapStats) *statsapi.SwapStats {
	switch {
	case c == nil:
		return pod
	case pod == nil:
		sum := *c
		return &sum
	}
	sum := &statsapi.SwapStats{Time: c.Time, SwapUsageBytes: new(deref(pod.SwapUsageBytes) + deref(c.SwapUsageBytes))}
	if pod.SwapAvailableBytes != nil && c.SwapAvailableBytes != nil {
		sum.SwapAvailableBytes = new(*pod.SwapAvailableBytes + *c.SwapAvailableBytes)
	}
	return sum
}

// psi returns the pressure on a resource; nil if the runtime does not say.
func psi(p *cri.PsiStats) *statsapi.PSIStats {
	if p == nil {
		return nil
	}
	data := func(d *cri.PsiData) statsapi.PSIData {
		return statsapi.PSIData{Total: d.GetTotal(), Avg10: d.GetAvg10(), Avg60: d.GetAvg60(), Avg300: d.GetAvg300()}
	}
	return &statsapi.PSIStats{Full: data(p.GetFull()), Some: data(p.GetSome())}
}

// uidOf returns the UID of the pod that a sandbox is of.
func uidOf(s *cri.PodSandboxStats) string {
	if uid := s.GetAttributes().GetLabels()[crispec.PodUID]; uid != "" {
		return uid
	}
	return s.GetAttributes().GetMetadata().GetUid()
}

func podStats(p Pod, s *cri.LinuxPodSandboxStats, layers map[string]*cri.FilesystemUsage, fs *statsapi.FsStats) statsapi.PodStats {
	out := statsapi.PodStats{
		PodRef:     statsapi.PodReference{Name: p.Name, Namespace: p.Namespace, UID: string(p.UID)},
		Containers: []statsapi.ContainerStats{}, CPU: cpu(s.GetCpu()), Memory: memoryOf(s.GetMemory()),
	}
	if p.Status.StartTime != nil {
		out.StartTime = *p.Status.StartTime
	}
	if n := s.GetNetwork(); n.GetDefaultInterface() != nil {
		out.Network = &statsapi.NetworkStats{Time: at(n.GetTimestamp()), InterfaceStats: link(n.GetDefaultInterface())}
		for _, i := range append([]*cri.NetworkInterfaceUsage{n.GetDefaultInterface()}, n.GetInterfaces()...) {
			out.Network.Interfaces = append(out.Network.Interfaces, link(i))
		}
	}
	if n := s.GetProcess().GetProcessCount(); n != nil {
		out.ProcessStats = &statsapi.ProcessStats{ProcessCount: &n.Value}
	}
	for _, c := range s.GetContainers() {
		id := c.GetAttributes().GetId()
		started, known := p.Started[id]
		if !known {
			continue // it has ended, or the agent has not seen it yet
		}
		name := c.GetAttributes().GetLabels()[crispec.ContainerName]
		if name == "" {
			name = c.GetAttributes().GetMetadata().GetName()
		}
		cs := statsapi.ContainerStats{Name: name, StartTime: metav1.NewTime(started), CPU: cpu(c.GetCpu()), Memory: memoryOf(c.GetMemory()), Swap: swap(c.GetSwap())}
		if l := layers[id]; l != nil {
			cs.Rootfs = layer(l, fs)
		}
		out.Containers = append(out.Containers, cs)
		out.Swap = addSwap(out.Swap, cs.Swap)
	}
	sorting.Slice(out.Containers, func(a, b statsapi.ContainerStats) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func at(nanoseconds int64) metav1.Time { return metav1.NewTime(time.Unix(0, nanoseconds)) }

func value(v *cri.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return &v.Value
}

func cpu(c *cri.CpuUsage) *statsapi.CPUStats {
	if c == nil {
		return nil
	}
	return &statsapi.CPUStats{Time: at(c.GetTimestamp()), UsageCoreNanoSeconds: value(c.GetUsageCoreNanoSeconds()), UsageNanoCores: value(c.GetUsageNanoCores()), PSI: psi(c.GetPsi())}
}

func memoryOf(m *cri.MemoryUsage) *statsapi.MemoryStats {
	if m == nil {
		return nil
	}
	return &statsapi.MemoryStats{
		Time: at(m.GetTimestamp()), AvailableBytes: value(m.GetAvailableBytes()), UsageBytes: value(m.GetUsageBytes()),
		WorkingSetBytes: value(m.GetWorkingSetBytes()), RSSBytes: value(m.GetRssBytes()),
		PageFaults: value(m.GetPageFaults()), MajorPageFaults: value(m.GetMajorPageFaults()),
		PSI: psi(m.GetPsi()),
	}
}

func link(i *cri.NetworkInterfaceUsage) statsapi.InterfaceStats {
	return statsapi.InterfaceStats{
		Name: i.GetName(), RxBytes: value(i.GetRxBytes()), RxErrors: value(i.GetRxErrors()), TxBytes: value(i.GetTxBytes()), TxErrors: value(i.GetTxErrors()),
	}
}

// layer returns the use of a writable layer, with the free space of the file system of the node.
func layer(l *cri.FilesystemUsage, fs *statsapi.FsStats) *statsapi.FsStats {
	out := &statsapi.FsStats{Time: at(l.GetTimestamp()), UsedBytes: value(l.GetUsedBytes()), InodesUsed: value(l.GetInodesUsed())}
	if fs != nil {
		out.AvailableBytes, out.CapacityBytes, out.InodesFree, out.Inodes = fs.AvailableBytes, fs.CapacityBytes, fs.InodesFree, fs.Inodes
	}
	return out
}
