package container

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

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
	Devices                   []DeviceUsage
	// CPUPressure, MemoryPressure and IOPressure say for how long processes waited; nil if the kernel does not measure it, such as with
	// cgroup v1.
	CPUPressure, MemoryPressure, IOPressure *cgroups.PSIStats
}

// DeviceUsage is what a cgroup has read from a block device and written to it. The page cache is before that.
type DeviceUsage struct {
	Major, Minor            uint64
	ReadBytes, WrittenBytes uint64
	Reads, Writes           uint64
}

// Name returns the path of the device, or "" if there is none any more.
func (d *DeviceUsage) Name() string {
	link, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", d.Major, d.Minor))
	if err != nil {
		return ""
	}
	return "/dev/" + filepath.Base(link)
}

// deviceUsage returns the use of block devices, by their numbers. The kernel counts other operations and sums, too.
func deviceUsage(s *cgroups.BlkioStats) []DeviceUsage {
	type number struct{ major, minor uint64 }
	all := map[number]*DeviceUsage{}
	add := func(entries []cgroups.BlkioStatEntry, read, write func(*DeviceUsage) *uint64) {
		for _, e := range entries {
			field := map[string]func(*DeviceUsage) *uint64{"Read": read, "Write": write}[e.Op]
			if field == nil {
				continue
			}
			at := number{e.Major, e.Minor}
			if all[at] == nil {
				all[at] = &DeviceUsage{Major: e.Major, Minor: e.Minor}
			}
			*field(all[at]) += e.Value
		}
	}
	add(s.IoServiceBytesRecursive, func(d *DeviceUsage) *uint64 { return &d.ReadBytes }, func(d *DeviceUsage) *uint64 { return &d.WrittenBytes })
	add(s.IoServicedRecursive, func(d *DeviceUsage) *uint64 { return &d.Reads }, func(d *DeviceUsage) *uint64 { return &d.Writes })
	out := make([]DeviceUsage, 0, len(all))
	for _, d := range all {
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b DeviceUsage) int {
		return cmp.Or(cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor))
	})
	return out
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
		Devices:     deviceUsage(&s.BlkioStats),
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
