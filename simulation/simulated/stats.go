package simulated

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// ListPodSandboxStats returns what the annotations of the pods declare, for the sandboxes that are ready.
func (r *Runtime) ListPodSandboxStats(_ context.Context, f *cri.PodSandboxStatsFilter) ([]*cri.PodSandboxStats, error) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*cri.PodSandboxStats
	for _, s := range r.sandboxes {
		if !s.ready || f.GetId() != "" && f.GetId() != s.id || !matches(f.GetLabelSelector(), s.config.GetLabels()) {
			continue
		}
		linux := &cri.LinuxPodSandboxStats{}
		var cpu, memory uint64
		for _, id := range s.containers {
			if c := r.containers[id]; c.status.GetState() == cri.ContainerState_CONTAINER_RUNNING {
				stats := c.stats(now)
				linux.Containers = append(linux.Containers, stats)
				cpu += stats.GetCpu().GetUsageCoreNanoSeconds().GetValue()
				memory += stats.GetMemory().GetUsageBytes().GetValue()
			}
		}
		linux.Cpu, linux.Memory = usage(now, cpu, memory)
		list = append(list, &cri.PodSandboxStats{
			Attributes: &cri.PodSandboxAttributes{
				Id: s.id, Metadata: s.config.GetMetadata(), Labels: s.config.GetLabels(), Annotations: s.config.GetAnnotations(),
			},
			Linux: linux,
		})
	}
	return list, nil
}

// ListContainerStats returns what the annotations of the pods declare, for the containers that run.
func (r *Runtime) ListContainerStats(_ context.Context, f *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*cri.ContainerStats
	for id, c := range r.containers {
		if c.status.GetState() == cri.ContainerState_CONTAINER_RUNNING && (f.GetId() == "" || f.GetId() == id) &&
			(f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.sandbox.id) && matches(f.GetLabelSelector(), c.status.GetLabels()) {
			list = append(list, c.stats(now))
		}
	}
	return list, nil
}

func (c *container) stats(now time.Time) *cri.ContainerStats {
	run := now.Sub(time.Unix(0, c.status.GetStartedAt()))
	cpu, memory := usage(now, c.usage.Nanoseconds(run), uint64(c.usage.Memory))
	return &cri.ContainerStats{
		Attributes: &cri.ContainerAttributes{
			Id: c.status.GetId(), Metadata: c.status.GetMetadata(), Labels: c.status.GetLabels(), Annotations: c.status.GetAnnotations(),
		},
		Cpu: cpu, Memory: memory,
	}
}

func usage(now time.Time, cpu, memory uint64) (*cri.CpuUsage, *cri.MemoryUsage) {
	at, bytes := now.UnixNano(), &cri.UInt64Value{Value: memory}
	return &cri.CpuUsage{Timestamp: at, UsageCoreNanoSeconds: &cri.UInt64Value{Value: cpu}},
		&cri.MemoryUsage{Timestamp: at, WorkingSetBytes: bytes, UsageBytes: bytes, RssBytes: bytes}
}

// OfMachine returns what the node uses: what its running containers use now, and what others have used since it
// started.
func (r *Runtime) OfMachine(now time.Time) (statsapi.NodeStats, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cpu, memory := r.used, uint64(0)
	for _, c := range r.containers {
		if c.status.GetState() == cri.ContainerState_CONTAINER_RUNNING {
			cpu += c.usage.Nanoseconds(now.Sub(time.Unix(0, c.status.GetStartedAt())))
			memory += uint64(c.usage.Memory)
		}
	}
	t := metav1.NewTime(now)
	return statsapi.NodeStats{
		StartTime: metav1.NewTime(r.started),
		CPU:       &statsapi.CPUStats{Time: t, UsageCoreNanoSeconds: &cpu},
		Memory:    &statsapi.MemoryStats{Time: t, UsageBytes: &memory, WorkingSetBytes: &memory, RSSBytes: &memory},
	}, nil
}
