package node

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	hostmemory "github.com/sampan-io/sampan/internal/memory"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/stats"
)

// machine is the hardware and the operating system of the node.
type machine struct {
	arch        string
	hostIPs     []string // the pods' hostIPs
	capacity    corev1.ResourceList
	allocatable corev1.ResourceList // of capacity, what is for pods
	qos         crispec.MemoryQoS
	info        corev1.NodeSystemInfo
	swap        crispec.Swap
	noQuota     bool // limits of CPU are not enforced
}

// inspect returns the machine that this process runs on.
func inspect(o Options, version versionResponse) (machine, error) {
	memory, err := memoryTotal()
	if err != nil {
		return machine{}, err
	}
	m := machine{arch: runtime.GOARCH, capacity: corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(int64(o.MaxPods), resource.DecimalSI),
	}}
	dir := o.RootDir
	if dir == "" {
		dir = os.TempDir()
	}
	var fs unix.Statfs_t
	if err := statfs(dir, &fs); err == nil {
		m.capacity[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(fs.Blocks*uint64(fs.Bsize)), resource.BinarySI)
	}
	if o.RootDir != "" {
		maps.Copy(m.capacity, hugePages("/sys/kernel/mm/hugepages"))
	}
	maps.Copy(m.capacity, o.Capacity)
	m.allocatable = m.capacity
	if o.Config != nil {
		m.allocatable = o.Config.Allocatable(m.capacity)
	}
	m.info = corev1.NodeSystemInfo{
		MachineID: oneOf("/etc/machine-id", "/var/lib/dbus/machine-id"), SystemUUID: oneOf("/sys/class/dmi/id/product_uuid", "/etc/machine-id"),
		BootID: oneOf("/proc/sys/kernel/random/boot_id"), KernelVersion: oneOf("/proc/sys/kernel/osrelease"), OSImage: osImage(),
		ContainerRuntimeVersion: fmt.Sprintf("%s://%s", version.GetRuntimeName(), version.GetRuntimeVersion()),
		KubeletVersion:          o.Version, OperatingSystem: "linux", Architecture: runtime.GOARCH,
	}
	for _, a := range o.Addresses {
		if a.Type == corev1.NodeInternalIP {
			m.hostIPs = append(m.hostIPs, a.Address)
		}
	}
	if swap := stats.SwapTotal(); swap > 0 {
		m.info.Swap = &corev1.NodeSwapStatus{Capacity: new(int64(swap))}
	}
	return m, nil
}

// hugePages returns how much memory, in bytes, the kernel has set aside for pages of each size that it supports.
func hugePages(dir string) corev1.ResourceList {
	list := corev1.ResourceList{}
	entries, _ := os.ReadDir(dir) // not there: none
	for _, e := range entries {
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		count, err := strconv.ParseInt(oneOf(filepath.Join(dir, e.Name(), "nr_hugepages")), 10, 64)
		if err != nil {
			continue
		}
		size := resource.NewQuantity(kb*1024, resource.BinarySI)
		list[corev1.ResourceName(corev1.ResourceHugePagesPrefix+size.String())] = *resource.NewQuantity(count*kb*1024, resource.BinarySI)
	}
	return list
}

// statfs returns the state of the file system that dir is or will be on.
func statfs(dir string, fs *unix.Statfs_t) error {
	for {
		err := unix.Statfs(dir, fs)
		i := strings.LastIndexByte(dir, '/')
		if err != unix.ENOENT || i < 0 || dir == "/" { // a bare errno
			return err
		}
		dir = dir[:max(i, 1)]
	}
}

func (m machine) spec() crispec.Capacity {
	return crispec.Capacity{MilliCPU: m.capacity.Cpu().MilliValue(), Memory: m.capacity.Memory().Value(), Swap: m.swap, QoS: m.qos, NoQuota: m.noQuota}
}

func memoryTotal() (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if size := hostmemory.Machine(); errors.Is(err, fs.ErrNotExist) && size > 0 { // another system than Linux
		return int64(size), nil
	}
	if err != nil {
		return 0, fmt.Errorf("size of memory: %w", err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "MemTotal:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb * 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo does not say MemTotal")
}

// oneOf returns the content of the first of the files that can be read.
func oneOf(paths ...string) string {
	for _, p := range paths {
		if b, err := os.ReadFile(p); err == nil {
			if s := strings.TrimSpace(string(b)); s != "" {
				return s
			}
		}
	}
	return ""
}

func osImage() string {
	for line := range strings.Lines(oneOf("/etc/os-release", "/usr/lib/os-release")) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			if s, err := strconv.Unquote(v); err == nil {
				return s
			}
			return v
		}
	}
	return "Linux"
}
