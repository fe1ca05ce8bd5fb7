package stats

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// OfMachine measures this machine at the time now. The file system is the one that dir is on. Values that the kernel does not
// have are left out; without its memory and processors the result is an error.
func OfMachine(dir string, now time.Time) (statsapi.NodeStats, error) {
	out := statsapi.NodeStats{Fs: OfFileSystem(dir, now), Network: networkOf(read("/proc/net/dev"), now)}
	cpu, boot, err := processors(read("/proc/stat"))
	if err != nil {
		return out, err
	}
	out.StartTime = metav1.NewTime(boot)
	out.Rlimit = processes(read("/proc/sys/kernel/pid_max"), read("/proc/loadavg"), now)
	out.Swap = swapOf(read("/proc/meminfo"), now)
	out.CPU = &statsapi.CPUStats{Time: metav1.NewTime(now), UsageCoreNanoSeconds: &cpu}
	out.Memory, err = memory(read("/proc/meminfo"), now)
	return out, err
}

// OfFileSystem measures the file system that dir is on. It returns nil if that is not possible.
func OfFileSystem(dir string, now time.Time) *statsapi.FsStats {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Bsize <= 0 {
		return nil
	}
	block := uint64(fs.Bsize)
	used := (fs.Blocks - fs.Bfree) * block
	inodes := fs.Files - fs.Ffree
	return &statsapi.FsStats{
		Time: metav1.NewTime(now), AvailableBytes: new(fs.Bavail * block), CapacityBytes: new(fs.Blocks * block), UsedBytes: &used,
		InodesFree: &fs.Ffree, Inodes: &fs.Files, InodesUsed: &inodes,
	}
}

// OfMemory measures the memory of this machine at the time now.
func OfMemory(now time.Time) (*statsapi.MemoryStats, error) {
	return memory(read("/proc/meminfo"), now)
}

// Blocks returns the device that a file is on and the bytes that it takes there. Ok is false if the system does not say.
func Blocks(info fs.FileInfo) (device uint64, size int64, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	// st_blocks is in units of 512 bytes, on all file systems.
	return uint64(s.Dev), s.Blocks * 512, true //nolint:unconvert // the device has 32 bits on macOS
}

func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}

// tick is the unit of times in /proc/stat, on all machines (USER_HZ).
const tick = 10 * time.Millisecond

// processors returns how long all processors have worked since the machine started, in nanoseconds, and when that was, from
// /proc/stat.
func processors(stat string) (busy uint64, boot time.Time, err error) {
	found := false
	for line := range strings.Lines(stat) {
		f := strings.Fields(line)
		switch {
		case len(f) > 7 && f[0] == "cpu":
			// user nice system idle iowait irq softirq …; time of guests is in user and nice.
			for _, i := range []int{1, 2, 3, 6, 7} {
				ticks, err := strconv.ParseUint(f[i], 10, 64)
				if err != nil || ticks > math.MaxInt64/uint64(tick) {
					return 0, boot, fmt.Errorf("/proc/stat: %q is not a number of ticks", f[i])
				}
				busy += ticks * uint64(tick)
			}
			found = true
		case len(f) == 2 && f[0] == "btime":
			seconds, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0, boot, fmt.Errorf("/proc/stat: %q is not a time", f[1])
			}
			boot = time.Unix(seconds, 0)
		}
	}
	if !found {
		return 0, boot, fmt.Errorf("/proc/stat has no line that begins with cpu")
	}
	return busy, boot, nil
}

// memory returns the memory in use, from /proc/meminfo. As for containers, the cache of files that have not been used for a
// while does not count to the working set.
func memory(info string, now time.Time) (*statsapi.MemoryStats, error) {
	values := kernelSizes(info)
	total, ok := values["MemTotal"]
	if !ok {
		return nil, fmt.Errorf("/proc/meminfo has no MemTotal")
	}
	used := total - min(total, values["MemFree"])
	working := used - min(used, values["Inactive(file)"])
	return &statsapi.MemoryStats{
		Time: metav1.NewTime(now), UsageBytes: &used, WorkingSetBytes: &working,
		AvailableBytes: new(total - working), RSSBytes: new(values["AnonPages"]),
	}, nil
}

// OfProcess measures this process.
func OfProcess(now time.Time) (*statsapi.CPUStats, *statsapi.MemoryStats) {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return nil, nil
	}
	nanoseconds := uint64(used.Utime.Nano() + used.Stime.Nano())
	cpu := &statsapi.CPUStats{Time: metav1.NewTime(now), UsageCoreNanoSeconds: &nanoseconds}
	f := strings.Fields(read("/proc/self/statm")) // proc(5): size, resident, shared … in pages
	if len(f) < 3 {
		return cpu, nil
	}
	resident, err := strconv.ParseUint(f[1], 10, 32)
	shared, err2 := strconv.ParseUint(f[2], 10, 32)
	if err != nil || err2 != nil {
		return cpu, nil
	}
	page := uint64(os.Getpagesize())
	resident, anonymous := resident*page, (resident-min(resident, shared))*page
	return cpu, &statsapi.MemoryStats{
		Time: metav1.NewTime(now), UsageBytes: &resident, WorkingSetBytes: &resident, RSSBytes: &anonymous,
		PageFaults: new(uint64(used.Minflt)), MajorPageFaults: new(uint64(used.Majflt)),
	}
}

// processes returns the number of processes and threads and its limit, from /proc/sys/kernel/pid_max and /proc/loadavg.
func processes(limit, load string, now time.Time) *statsapi.RlimitStats {
	most, err := strconv.ParseInt(strings.TrimSpace(limit), 10, 64)
	f := strings.Fields(load) // 0.20 0.18 0.12 RUNNING/ALL LAST
	if err != nil || len(f) < 4 {
		return nil
	}
	_, all, _ := strings.Cut(f[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	if err != nil {
		return nil
	}
	return &statsapi.RlimitStats{Time: metav1.NewTime(now), MaxPID: &most, NumOfRunningProcesses: &n}
}

// swapOf returns the use of swap, from /proc/meminfo.
func swapOf(info string, now time.Time) *statsapi.SwapStats {
	values := kernelSizes(info)
	total, ok := values["SwapTotal"]
	if !ok {
		return nil
	}
	free := min(total, values["SwapFree"])
	return &statsapi.SwapStats{Time: metav1.NewTime(now), SwapAvailableBytes: &free, SwapUsageBytes: new(total - free)}
}

// SwapTotal returns the size of the swap of this machine in bytes.
func SwapTotal() uint64 { return kernelSizes(read("/proc/meminfo"))["SwapTotal"] }

// kernelSizes returns the lines of /proc/meminfo in bytes.
func kernelSizes(info string) map[string]uint64 {
	values := map[string]uint64{}
	for line := range strings.Lines(info) {
		name, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if !ok || len(f) == 0 {
			continue
		}
		if v, err := strconv.ParseUint(f[0], 10, 64); err == nil && v < math.MaxUint64>>10 {
			values[name] = v << 10 // they are in KiB
		}
	}
	return values
}

// networkOf returns the counters of all interfaces but the loopback, from /proc/net/dev. The first one that is not a link to a
// pod or a bridge of pods is the default.
func networkOf(dev string, now time.Time) *statsapi.NetworkStats {
	out := &statsapi.NetworkStats{Time: metav1.NewTime(now)}
	for line := range strings.Lines(dev) {
		name, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if name = strings.TrimSpace(name); !ok || name == "lo" || len(f) < 11 {
			continue
		}
		number := func(i int) *uint64 {
			v, err := strconv.ParseUint(f[i], 10, 64)
			if err != nil {
				return nil
			}
			return &v
		}
		i := statsapi.InterfaceStats{Name: name, RxBytes: number(0), RxErrors: number(2), TxBytes: number(8), TxErrors: number(10)}
		out.Interfaces = append(out.Interfaces, i)
		if _, err := os.Lstat("/sys/class/net/" + name + "/device"); out.Name == "" && err == nil {
			out.InterfaceStats = i
		}
	}
	if len(out.Interfaces) == 0 {
		return nil
	}
	if out.Name == "" {
		out.InterfaceStats = out.Interfaces[0]
	}
	return out
}
