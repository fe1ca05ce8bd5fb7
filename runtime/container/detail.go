package container

import (
	"math"
	"os"
	"path/filepath"

	"github.com/opencontainers/cgroups"
)

// Detail is what the kernel counts for a cgroup beside the usual. What it does not count is zero.
type Detail struct {
	CPUUser, CPUSystem        uint64 // nanoseconds
	Periods, ThrottledPeriods uint64 // of a CPU limit
	ThrottledTime             uint64 // nanoseconds
	MaxMemory                 uint64 // bytes: the most so far
	Cache, MappedFile         uint64 // bytes
	LimitHits                 uint64 // how often the memory limit was reached
	OOMKills                  int
	Swap                      *SwapUsage // nil if the kernel does not count it
	// CPUPressure, MemoryPressure and IOPressure say for how long processes waited; nil if the kernel does not measure it, such as with
	// cgroup v1.
	CPUPressure, MemoryPressure, IOPressure *cgroups.PSIStats
}

// SwapUsage is the use of swap by a cgroup.
type SwapUsage struct {
	Used  uint64  // bytes
	Limit *uint64 // bytes; nil if there is none
}

func detail(path string, s *cgroups.Stats) Detail {
	cpu, memory := &s.CpuStats, &s.MemoryStats
	d := Detail{
		CPUUser: cpu.CpuUsage.UsageInUsermode, CPUSystem: cpu.CpuUsage.UsageInKernelmode,
		Periods: cpu.ThrottlingData.Periods, ThrottledPeriods: cpu.ThrottlingData.ThrottledPeriods, ThrottledTime: cpu.ThrottlingData.ThrottledTime,
		MaxMemory: memory.Usage.MaxUsage, Cache: memory.Cache, LimitHits: memory.Usage.Failcnt, OOMKills: oomKills(path),
		MappedFile:  memory.Stats["total_mapped_file"],
		CPUPressure: cpu.PSI, MemoryPressure: memory.PSI, IOPressure: s.BlkioStats.PSI,
	}
	if !unified() {
		d.Swap = swapBesideMemory(memory)
		return d
	}
	d.MappedFile = memory.Stats["file_mapped"]
	if _, err := os.Stat(filepath.Join(cgroupMount, path, "memory.swap.current")); err == nil {
		d.Swap = swapOf(memory.SwapOnlyUsage)
	}
	return d
}

// swapOf returns the use of swap in cgroup v2.
func swapOf(m cgroups.MemoryData) *SwapUsage {
	u := &SwapUsage{Used: m.Usage}
	if m.Limit != math.MaxUint64 {
		u.Limit = &m.Limit
	}
	return u
}

// swapBesideMemory returns the use of swap in cgroup v1, which limits memory and swap together: what the limit of both allows
// beyond that of memory is for swap. The library's own difference of the two usages can be negative, because it does not read them
// at the same time.
func swapBesideMemory(m *cgroups.MemoryStats) *SwapUsage {
	used, counted := m.Stats["total_swap"]
	if !counted {
		return nil
	}
	u := &SwapUsage{Used: used}
	if both := m.SwapUsage.Limit; both < noMemoryLimit && m.SwapUsage.Limit >= m.Usage.Limit {
		limit := both - m.Usage.Limit
		u.Limit = &limit
	}
	return u
}
