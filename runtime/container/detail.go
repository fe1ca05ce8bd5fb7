package container

import "github.com/opencontainers/cgroups"

// Detail is what the kernel counts for a cgroup beside the usual. What it does not count is zero.
type Detail struct {
	CPUUser, CPUSystem        uint64 // nanoseconds
	Periods, ThrottledPeriods uint64 // of a CPU limit
	ThrottledTime             uint64 // nanoseconds
	MaxMemory                 uint64 // bytes: the most so far
	Cache, MappedFile, Swap   uint64 // bytes
	LimitHits                 uint64 // how often the memory limit was reached
	OOMKills                  int
}

func detail(path string, s *cgroups.Stats) Detail {
	cpu, memory := &s.CpuStats, &s.MemoryStats
	d := Detail{
		CPUUser: cpu.CpuUsage.UsageInUsermode, CPUSystem: cpu.CpuUsage.UsageInKernelmode,
		Periods: cpu.ThrottlingData.Periods, ThrottledPeriods: cpu.ThrottlingData.ThrottledPeriods, ThrottledTime: cpu.ThrottlingData.ThrottledTime,
		MaxMemory: memory.Usage.MaxUsage, Cache: memory.Cache, LimitHits: memory.Usage.Failcnt, OOMKills: oomKills(path),
		MappedFile: memory.Stats["total_mapped_file"], Swap: memory.SwapOnlyUsage.Usage,
	}
	if unified() {
		d.MappedFile = memory.Stats["file_mapped"]
	}
	return d
}
