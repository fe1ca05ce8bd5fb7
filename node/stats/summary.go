package stats

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

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
			out.Pods = append(out.Pods, podStats(p, s.GetLinux(), layers, m.Node.Fs))
		}
	}
	slices.SortFunc(out.Pods, func(a, b statsapi.PodStats) int {
		return strings.Compare(a.PodRef.Namespace+"/"+a.PodRef.Name+"/"+a.PodRef.UID, b.PodRef.Namespace+"/"+b.PodRef.Name+"/"+b.PodRef.UID)
	})
	return out
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
		cs := statsapi.ContainerStats{Name: name, StartTime: metav1.NewTime(started), CPU: cpu(c.GetCpu()), Memory: memoryOf(c.GetMemory())}
		if l := layers[id]; l != nil {
			cs.Rootfs = layer(l, fs)
		}
		out.Containers = append(out.Containers, cs)
	}
	slices.SortFunc(out.Containers, func(a, b statsapi.ContainerStats) int { return strings.Compare(a.Name, b.Name) })
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
	return &statsapi.CPUStats{Time: at(c.GetTimestamp()), UsageCoreNanoSeconds: value(c.GetUsageCoreNanoSeconds()), UsageNanoCores: value(c.GetUsageNanoCores())}
}

func memoryOf(m *cri.MemoryUsage) *statsapi.MemoryStats {
	if m == nil {
		return nil
	}
	return &statsapi.MemoryStats{
		Time: at(m.GetTimestamp()), AvailableBytes: value(m.GetAvailableBytes()), UsageBytes: value(m.GetUsageBytes()),
		WorkingSetBytes: value(m.GetWorkingSetBytes()), RSSBytes: value(m.GetRssBytes()),
		PageFaults: value(m.GetPageFaults()), MajorPageFaults: value(m.GetMajorPageFaults()),
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
