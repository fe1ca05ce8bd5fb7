package container

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

const cgroupMount = "/sys/fs/cgroup"

// unified reports whether the machine has cgroup v2 alone.
func unified() bool { return cgroups.IsCgroup2UnifiedMode() }

var errNoCgroups = errors.New("cgroups: nothing is mounted below " + cgroupMount + "; containers need it: mount cgroup2 there")

// hierarchies are the mount points below which a cgroup has a directory.
func hierarchies() ([]string, error) {
	if unified() {
		return []string{cgroupMount}, nil
	}
	entries, err := os.ReadDir(cgroupMount)
	if err != nil {
		return nil, fmt.Errorf("cgroups: %w", err)
	}
	var found []string
	for _, e := range entries {
		if !e.IsDir() { // a link such as cpu → cpu,cpuacct
			continue
		}
		dir := filepath.Join(cgroupMount, e.Name())
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err == nil && (st.Type == unix.CGROUP_SUPER_MAGIC || st.Type == unix.CGROUP2_SUPER_MAGIC) {
			found = append(found, dir)
		}
	}
	if len(found) == 0 {
		return nil, errNoCgroups
	}
	return found, nil
}

// CgroupParent finds a path for a cgroup of the given name: at the root of every
// hierarchy where that is possible, and otherwise below the cgroup of this
// process. It makes nothing that it leaves behind when it fails.
func CgroupParent(name string) (string, error) {
	roots, err := hierarchies()
	if err != nil {
		return "", err
	}
	if _, err := members(); err != nil {
		return "", err
	}
	try := func(parent string) error {
		for _, root := range roots {
			if err := os.Mkdir(filepath.Join(root, parent), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
		return nil
	}
	atRoot := filepath.Join("/", name)
	first := try(atRoot)
	if first == nil {
		return atRoot, nil
	}
	_ = RemoveCgroup(atRoot)
	if own, err := ownCgroup(); err == nil && own != "/" {
		below := filepath.Join(own, name)
		if try(below) == nil {
			return below, nil
		}
		_ = RemoveCgroup(below)
	}
	return "", fmt.Errorf("no place for the cgroup %s: %w", name, first)
}

// members is the mount point of the hierarchy that lists the processes of a
// container's cgroup. On v1 that is the one that keeps containers from the host's
// devices: without it no container is started.
func members() (string, error) {
	if unified() {
		return cgroupMount, nil
	}
	mounts, err := cgroups.GetCgroupMounts(false)
	if err != nil {
		return "", fmt.Errorf("cgroups: %w", err)
	}
	for _, m := range mounts {
		if slices.Contains(m.Subsystems, "devices") {
			return m.Mountpoint, nil
		}
	}
	return "", errors.New("cgroups: without the devices controller of cgroup v1 containers could use all devices of the machine; " +
		"mount it at " + cgroupMount + "/devices (type cgroup, option devices), or cgroup2 at " + cgroupMount)
}

// ownCgroup is the path of this process' cgroup: the unified one, or on v1 that of
// the memory controller, or without it of the devices controller.
func ownCgroup() (string, error) {
	paths, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	if unified() {
		return paths[""], nil
	}
	return cmp.Or(paths["memory"], paths["devices"]), nil
}

// notRoot refuses the root cgroup, and every cgroup that this process is in: an operation
// on all processes of a cgroup must never be applied to those.
func notRoot(path string) error {
	clean := filepath.Clean("/" + path)
	if clean == "/" || !filepath.IsAbs(path) {
		return fmt.Errorf("cgroup %q is not the path of one below the root", path)
	}
	own, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	return notOurs(path, own)
}

// notOurs refuses a cgroup that is, or is above, one of a process' own.
func notOurs(path string, own map[string]string) error {
	clean := filepath.Clean("/" + path)
	for _, p := range own {
		if p == clean || strings.HasPrefix(p, clean+"/") {
			return fmt.Errorf("cgroup %q holds this process itself", path)
		}
	}
	return nil
}

// RemoveCgroup removes the cgroup at path and all below it from every hierarchy.
// One that still holds processes stays, and is reported.
func RemoveCgroup(path string) error { return everywhere(path, cgroups.RemovePath) }

// KillCgroup kills every process in the cgroup at path and in all below it, and
// waits until they are gone from it. Processes that are not our children can only
// be seen to leave; that is bounded by ten seconds.
func KillCgroup(path string) error {
	return everywhere(path, func(dir string) error {
		return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.Name() != "cgroup.procs" {
				return nil // a cgroup that goes away meanwhile is what we want
			}
			return killAll(p)
		})
	})
}

// everywhere does something to the directory of a cgroup in every hierarchy; if there are no
// cgroups at all, nothing.
func everywhere(path string, do func(dir string) error) error {
	if err := notRoot(path); err != nil {
		return err
	}
	roots, err := hierarchies()
	if errors.Is(err, errNoCgroups) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, root := range roots {
		errs = append(errs, do(filepath.Join(root, path)))
	}
	return errors.Join(errs...)
}

// killAll kills what a cgroup.procs file lists, until it lists nothing.
func killAll(procs string) error {
	const patience = 10_000 // milliseconds; a process in uninterruptible sleep ignores signals
	for range 100 {
		data, err := os.ReadFile(procs)
		if err != nil {
			return nil // gone
		}
		fields := strings.Fields(string(data))
		if len(fields) == 0 {
			return nil
		}
		for _, field := range fields {
			pid, err := strconv.Atoi(field)
			if err != nil || pid <= 0 {
				continue
			}
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue // it has gone
			}
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			// Readable means dead; our own children are reaped here, too.
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, patience)
			_ = unix.Waitid(unix.P_PIDFD, fd, nil, unix.WEXITED|unix.WNOHANG, nil)
			_ = unix.Close(fd)
		}
	}
	return fmt.Errorf("processes in %s survive SIGKILL", filepath.Dir(procs))
}

// LeastOOMScoreAdj is the smallest oom_score_adj that this process may give to a
// child: without CAP_SYS_RESOURCE that is the smallest one that it has had itself.
func LeastOOMScoreAdj() int {
	const path = "/proc/self/oom_score_adj"
	old, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	own, err := strconv.Atoi(strings.TrimSpace(string(old)))
	if err != nil {
		return 0
	}
	// The kernel says no to a value that it won't let us have, so ask it: each
	// try that it accepts is taken back at once.
	try := func(v int) bool {
		if os.WriteFile(path, []byte(strconv.Itoa(v)), 0) != nil {
			return false
		}
		_ = os.WriteFile(path, old, 0)
		return true
	}
	low, high := -1000, own // high is always possible
	if try(low) {
		return low
	}
	for high-low > 1 {
		if middle := (low + high) / 2; try(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// signalCgroup sends a signal to all processes in a container's cgroup.
func signalCgroup(path string, sig unix.Signal) {
	if notRoot(path) != nil {
		return
	}
	for _, pid := range processes(path) {
		_ = unix.Kill(pid, sig)
	}
}

// processes lists those in the cgroup at path and in all below it.
func processes(path string) []int {
	root, err := members()
	if err != nil {
		return nil
	}
	pids, err := cgroups.GetAllPids(filepath.Join(root, path))
	if err != nil {
		return nil
	}
	return pids
}

// resident sums up the memory that processes have, for a kernel that doesn't count
// it by cgroup. Shared memory is counted for each process.
func resident(pids []int) uint64 {
	var pages uint64
	for _, pid := range pids {
		// size resident shared …
		if f := words("/proc/" + strconv.Itoa(pid) + "/statm"); len(f) > 1 {
			n, _ := strconv.ParseUint(f[1], 10, 64)
			pages += n
		}
	}
	return pages * uint64(os.Getpagesize())
}

// oomKills is how many processes of the cgroup the kernel has killed for want of
// memory.
func oomKills(path string) int {
	file := filepath.Join(cgroupMount, "memory", path, "memory.oom_control")
	if unified() {
		file = filepath.Join(cgroupMount, path, "memory.events")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			count, _ := strconv.Atoi(strings.TrimSpace(n))
			return count
		}
	}
	return 0
}

// CgroupPlaces are where [CgroupParent] may have put the cgroup of that name.
func CgroupPlaces(name string) []string {
	places := []string{filepath.Join("/", name)}
	if own, err := ownCgroup(); err == nil && own != "/" {
		places = append(places, filepath.Join(own, name))
	}
	return places
}
