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
	return s.Dev, s.Blocks * 512, true // st_blocks is in units of 512 bytes, on all file systems
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
