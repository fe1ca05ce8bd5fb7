package nodes

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/node/stats"
	"github.com/sampan-io/sampan/simulation"
)

// ResourceMetrics returns the metrics that the kubelet of a simulated node with these pods would serve at /metrics/resource: what
// the plan and the annotations of the pods declare for the containers that run. CPU time of containers that have ended does
// not count for the node.
func ResourceMetrics(plan *simulation.Plan, pods []*corev1.Pod, now time.Time) []byte {
	s := &statsapi.Summary{}
	var busy, bytes uint64
	for _, p := range pods {
		u := plan.Life(p).Usage
		out := statsapi.PodStats{PodRef: statsapi.PodReference{Name: p.Name, Namespace: p.Namespace, UID: string(p.UID)}}
		var cpu, memory uint64
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running == nil {
				continue
			}
			start := c.State.Running.StartedAt
			used := u.Nanoseconds(now.Sub(start.Time))
			cpu, memory = cpu+used, memory+uint64(u.Memory)
			out.Containers = append(out.Containers, statsapi.ContainerStats{
				Name: c.Name, StartTime: start, CPU: cpuStats(used, now), Memory: memoryStats(uint64(u.Memory), now),
			})
		}
		if len(out.Containers) == 0 {
			continue
		}
		out.CPU, out.Memory = cpuStats(cpu, now), memoryStats(memory, now)
		s.Pods = append(s.Pods, out)
		busy, bytes = busy+cpu, bytes+memory
	}
	sorting.Slice(s.Pods, func(a, b statsapi.PodStats) int {
		return strings.Compare(a.PodRef.Namespace+"/"+a.PodRef.Name, b.PodRef.Namespace+"/"+b.PodRef.Name)
	})
	s.Node.CPU, s.Node.Memory = cpuStats(busy, now), memoryStats(bytes, now)
	return stats.Metrics(s)
}

func cpuStats(nanoseconds uint64, now time.Time) *statsapi.CPUStats {
	return &statsapi.CPUStats{Time: metav1.NewTime(now), UsageCoreNanoSeconds: &nanoseconds}
}

func memoryStats(bytes uint64, now time.Time) *statsapi.MemoryStats {
	return &statsapi.MemoryStats{Time: metav1.NewTime(now), WorkingSetBytes: &bytes}
}
