package memory

import (
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Available returns how many bytes of memory the process may have when it is called: those of the machine, or the limit of
// a cgroup that it is in, if that is less; 0 if neither is known. A service of systemd or a container has such a limit.
func Available() uint64 { return available(os.DirFS("/"), Machine()) }

// available returns what Available does, with the file system root, on a machine of so many bytes.
func available(root fs.FS, machine uint64) uint64 {
	least := uint64(math.MaxUint64)
	if machine > 0 {
		least = machine
	}
	for _, h := range memoryHierarchies(root) {
		for dir := h.own; ; dir = path.Dir(dir) {
			for _, name := range h.files {
				if limit, ok := readLimit(root, path.Join(dir, name)); ok {
					least = min(least, limit)
				}
			}
			if len(dir) <= len(h.mount) {
				break
			}
		}
	}
	if least == math.MaxUint64 {
		return 0
	}
	return least
}

// readLimit returns the number in a file. It reports false if there is none: "max" means no limit, and the root of a hierarchy
// has no such files.
func readLimit(root fs.FS, file string) (uint64, bool) {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return 0, false
	}
	limit, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return limit, err == nil
}

// A memoryHierarchy is a mounted hierarchy of cgroups that can limit memory.
type memoryHierarchy struct {
	mount string   // its directory, without the first slash
	own   string   // the directory of the process's cgroup, in mount
	files []string // with limits; those of a parent hold for its children
}

// memoryHierarchies returns the hierarchies of cgroup v2 and v1. A machine can have both.
func memoryHierarchies(root fs.FS) (all []memoryHierarchy) {
	cgroups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	mounts, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(cgroups)) {
		// cgroups(7): hierarchy-ID:controller-list:cgroup-path
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		fsType, files := "cgroup2", []string{"memory.max", "memory.high"}
		if fields[1] != "" {
			if !slices.Contains(strings.Split(fields[1], ","), "memory") {
				continue
			}
			fsType, files = "cgroup", []string{"memory.limit_in_bytes"}
		}
		if mount, rest, ok := findMount(string(mounts), fsType, fields[2]); ok {
			mount = strings.Trim(mount, "/")
			all = append(all, memoryHierarchy{mount, path.Join(mount, rest), files})
		}
	}
	return all
}

// findMount returns where the hierarchy of a cgroup is mounted, and the path of the cgroup below that, from a text in the
// format of /proc/self/mountinfo (proc_pid_mountinfo(5)). Of cgroup v1 it is the hierarchy that limits memory.
//
// A hierarchy can be mounted in several places, each with another directory of it as its root: a container runtime mounts
// the directories of containers elsewhere, and a process with its own cgroup namespace sees the mount of its parent
// beside its own. The mount with the most parents of the cgroup is used, because their limits hold for it as well. If no
// mount has the cgroup, the first mount is used as if its root were the cgroup. A process has such mounts if it was moved
// out of its cgroup namespace.
func findMount(mountinfo, fsType, cgroup string) (mount, rest string, ok bool) {
	shortest := -1 // length of the root of the mount, if it has the cgroup
	for line := range strings.Lines(mountinfo) {
		before, after, found := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !found || len(fields) < 5 || len(kind) < 3 || kind[0] != fsType {
			continue
		}
		if fsType == "cgroup" && !slices.Contains(strings.Split(kind[2], ","), "memory") {
			continue
		}
		root := fields[3]
		switch path, has := below(root, cgroup); {
		case has && (shortest < 0 || len(root) < shortest):
			mount, rest, shortest, ok = fields[4], path, len(root), true
		case !ok:
			mount, ok = fields[4], true
		}
	}
	return mount, rest, ok
}

// below returns the path of a cgroup below the directory root of its hierarchy. It reports false if the cgroup is not
// below it. Both paths begin with "/.." if they are outside of the cgroup namespace.
func below(root, cgroup string) (string, bool) {
	rest, ok := strings.CutPrefix(cgroup, strings.TrimSuffix(root, "/"))
	if !ok || rest != "" && rest[0] != '/' || rest == "/.." || strings.HasPrefix(rest, "/../") {
		return "", false
	}
	return rest, true
}
