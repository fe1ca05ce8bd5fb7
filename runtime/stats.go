package runtime

import (
	"context"

	"github.com/opencontainers/cgroups"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/runtime/container"
)

// ContainerStats implements CRI.
func (s *Server) ContainerStats(_ context.Context, req *cri.ContainerStatsRequest) (*cri.ContainerStatsResponse, error) {
	stats, err := s.containerStats(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	s.addWritableLayer(stats)
	return &cri.ContainerStatsResponse{Stats: stats}, nil
}

// ListContainerStats implements CRI. Only running containers have any.
func (s *Server) ListContainerStats(ctx context.Context, req *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	f := req.GetFilter()
	list, err := s.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		Id: f.GetId(), PodSandboxId: f.GetPodSandboxId(), LabelSelector: f.GetLabelSelector(),
		State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return nil, err
	}
	res := &cri.ListContainerStatsResponse{}
	for _, c := range list.GetContainers() {
		if stats, err := s.containerStats(c.GetId()); err == nil { // otherwise it has just ended
			s.addWritableLayer(stats)
			res.Stats = append(res.Stats, stats)
		}
	}
	return res, nil
}

// PodSandboxStats implements CRI.
func (s *Server) PodSandboxStats(_ context.Context, req *cri.PodSandboxStatsRequest) (*cri.PodSandboxStatsResponse, error) {
	p, err := s.findPod(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &cri.PodSandboxStatsResponse{Stats: s.podStats(p, s.supervisor.List())}, nil
}

// ListPodSandboxStats implements CRI, for the pods that are ready. The containers in it are without their writable layers:
// unlike the other values they can only be measured by reading all directories.
func (s *Server) ListPodSandboxStats(_ context.Context, req *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	res := &cri.ListPodSandboxStatsResponse{}
	f := req.GetFilter()
	containers := s.supervisor.List()
	for _, p := range s.listPods() {
		r := p.snapshot()
		if r.Made && r.Ready && (f.GetId() == "" || f.GetId() == r.ID) && selected(f.GetLabelSelector(), p.config.GetLabels()) {
			res.Stats = append(res.Stats, s.podStats(p, containers))
		}
	}
	return res, nil
}

// podStats returns the stats of a pod and of those of the containers that are in it and run. What cannot be measured,
// because the pod is ending, is left out.
func (s *Server) podStats(p *pod, containers []container.Record) *cri.PodSandboxStats {
	r := p.snapshot()
	linux := &cri.LinuxPodSandboxStats{}
	for i := range containers {
		if c := &containers[i]; c.Pod == r.ID && c.State() == container.Running && c.ID != r.Pause {
			if stats, err := s.containerStats(c.ID); err == nil {
				linux.Containers = append(linux.Containers, stats)
			}
		}
	}
	if u, err := container.CgroupUsage(r.Cgroup); err == nil {
		linux.Cpu, linux.Memory, linux.Io = cpuUsage(u), memoryUsage(u), ioUsage(u)
		linux.Process = &cri.ProcessUsage{Timestamp: u.At.UnixNano(), ProcessCount: counted(u.Processes)}
		if r.Link != "" {
			linux.Network = s.networkUsage(r.Link, u.At.UnixNano())
		}
	}
	return &cri.PodSandboxStats{
		Attributes: &cri.PodSandboxAttributes{
			Id: r.ID, Metadata: p.config.GetMetadata(), Labels: p.config.GetLabels(), Annotations: p.config.GetAnnotations(),
		},
		Linux: linux,
	}
}

func (s *Server) containerStats(id string) (*cri.ContainerStats, error) {
	u, err := s.supervisor.Stats(id)
	if err != nil {
		return nil, err
	}
	out := &cri.ContainerStats{Attributes: &cri.ContainerAttributes{Id: id}, Cpu: cpuUsage(u), Memory: memoryUsage(u), Swap: swapUsage(u), Io: ioUsage(u)}
	if cc := s.containerConfig(id); cc != nil {
		out.Attributes.Metadata, out.Attributes.Labels, out.Attributes.Annotations = cc.config.GetMetadata(), cc.config.GetLabels(), cc.config.GetAnnotations()
	}
	return out, nil
}

// addWritableLayer measures what a container has written to its root file system.
func (s *Server) addWritableLayer(stats *cri.ContainerStats) {
	store := s.images.Load()
	if store == nil {
		return
	}
	if space, err := store.ContainerUsage(stats.GetAttributes().GetId()); err == nil {
		stats.WritableLayer = &cri.FilesystemUsage{
			Timestamp: stats.GetMemory().GetTimestamp(), FsId: &cri.FilesystemIdentifier{Mountpoint: store.Dir()},
			UsedBytes: counted(space.Bytes), InodesUsed: counted(space.Inodes),
		}
	}
}

func counted(v uint64) *cri.UInt64Value { return &cri.UInt64Value{Value: v} }

// cpuUsage is nil if the kernel does not count it.
func cpuUsage(u container.Usage) *cri.CpuUsage {
	if u.CPU == 0 {
		return nil
	}
	return &cri.CpuUsage{Timestamp: u.At.UnixNano(), UsageCoreNanoSeconds: counted(u.CPU), Psi: pressure(u.CPUPressure)}
}

func memoryUsage(u container.Usage) *cri.MemoryUsage {
	m := &cri.MemoryUsage{
		Timestamp: u.At.UnixNano(), WorkingSetBytes: counted(u.WorkingSet), UsageBytes: counted(u.Memory), RssBytes: counted(u.RSS),
		PageFaults: counted(u.PageFaults), MajorPageFaults: counted(u.MajorPageFaults),
		Psi: pressure(u.MemoryPressure),
	}
	if u.Limit > 0 {
		m.AvailableBytes = counted(u.Limit - min(u.Limit, u.WorkingSet))
	}
	return m
}

// ioUsage is nil if the kernel does not measure the pressure on input and output.
func ioUsage(u container.Usage) *cri.IoUsage {
	if u.IOPressure == nil {
		return nil
	}
	return &cri.IoUsage{Timestamp: u.At.UnixNano(), Psi: pressure(u.IOPressure)}
}

// pressure returns for how long processes waited for a resource; nil if the kernel does not measure it.
func pressure(p *cgroups.PSIStats) *cri.PsiStats {
	if p == nil {
		return nil
	}
	data := func(d cgroups.PSIData) *cri.PsiData {
		return &cri.PsiData{Total: d.Total, Avg10: d.Avg10, Avg60: d.Avg60, Avg300: d.Avg300}
	}
	return &cri.PsiStats{Some: data(p.Some), Full: data(p.Full)}
}

// swapUsage is nil if the kernel does not count it.
func swapUsage(u container.Usage) *cri.SwapUsage {
	if u.Swap == nil {
		return nil
	}
	s := &cri.SwapUsage{Timestamp: u.At.UnixNano(), SwapUsageBytes: counted(u.Swap.Used)}
	if limit := u.Swap.Limit; limit != nil {
		s.SwapAvailableBytes = counted(*limit - min(*limit, u.Swap.Used))
	}
	return s
}

// networkUsage returns what a pod has sent and received. It is nil if the link of the pod is gone.
func (s *Server) networkUsage(link string, at int64) *cri.NetworkUsage {
	t, err := s.network.Traffic(link)
	if err != nil {
		return nil
	}
	return &cri.NetworkUsage{Timestamp: at, DefaultInterface: &cri.NetworkInterfaceUsage{
		Name: t.Interface, RxBytes: counted(t.Received), RxErrors: counted(t.ReceiveErrors), TxBytes: counted(t.Sent), TxErrors: counted(t.SendErrors),
	}}
}
