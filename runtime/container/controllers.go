package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
)

// Controllers are the cgroup controllers that can limit what is in a cgroup. "swap"
// is among them where memory and swap can be limited together.
type Controllers map[string]bool

// usual are the controllers of the limits that pods have all the time.
func usual() []string { return []string{"cpu", "memory", "pids"} }

// controllersBelow returns the controllers that limit the cgroups below the one at path.
// With cgroup v2 it enables them from the root down to there first, as far as the kernel
// allows that.
func controllersBelow(path string) (Controllers, error) {
	has := Controllers{}
	if unified() {
		if err := delegate(path); err != nil {
			return nil, err
		}
		dir := filepath.Join(cgroupMount, path)
		for _, c := range words(filepath.Join(dir, "cgroup.subtree_control")) {
			has[c] = true
		}
		_, err := os.Stat(filepath.Join(dir, "memory.swap.max"))
		has["swap"] = err == nil
		return has, nil
	}
	mounts, err := cgroups.GetCgroupMounts(false)
	if err != nil {
		return nil, fmt.Errorf("cgroups: %w", err)
	}
	for _, m := range mounts {
		for _, c := range m.Subsystems {
			has[c] = true
		}
		if slices.Contains(m.Subsystems, "memory") {
			_, err := os.Stat(filepath.Join(m.Mountpoint, "memory.memsw.limit_in_bytes"))
			has["swap"] = err == nil
		}
	}
	return has, nil
}

// delegate creates the cgroup at path of the v2 hierarchy, and enables every controller
// in it and for the cgroups below it. A controller that can't be enabled, because
// processes are in the way or a cgroup above does not delegate it, is left out.
func delegate(path string) error {
	dir := cgroupMount
	for name := range strings.SplitSeq(strings.Trim(filepath.Clean(path), "/"), "/") {
		passOn(dir)
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("cgroup %s: %w", path, err)
		}
	}
	passOn(dir)
	return nil
}

func passOn(dir string) {
	file := filepath.Join(dir, "cgroup.subtree_control")
	passed := words(file)
	for _, c := range words(filepath.Join(dir, "cgroup.controllers")) {
		if !slices.Contains(passed, c) {
			_ = os.WriteFile(file, []byte("+"+c), 0) // one by one: a single refusal would refuse all
		}
	}
}

func words(file string) []string {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return strings.Fields(string(data))
}

// Within returns those of the limits that these controllers can enforce, and the
// names of the controllers that the others would need, sorted. OOMScoreAdj needs
// none.
func (r Resources) Within(has Controllers) (Resources, []string) {
	missing := map[string]bool{}
	without := func(controller string, asked bool) bool {
		if asked && !has[controller] {
			missing[controller] = true
		}
		return !has[controller]
	}
	if without("cpu", r.CPUShares != 0 || r.CPUQuota > 0) {
		r.CPUShares, r.CPUQuota, r.CPUPeriod = 0, 0, 0
	}
	if without("cpuset", r.Cpuset != "" || r.CpusetMems != "") {
		r.Cpuset, r.CpusetMems = "", ""
	}
	if without("memory", r.MemoryLimit > 0) {
		r.MemoryLimit, r.SwapLimit = 0, 0
	}
	if !has["swap"] {
		r.SwapLimit = 0
	}
	if without("pids", r.PidsLimit > 0) {
		r.PidsLimit = 0
	}
	if without("hugetlb", len(r.Hugepages) > 0) {
		r.Hugepages = nil
	}
	var unified map[string]string
	for file, value := range r.Unified {
		controller, _, _ := strings.Cut(file, ".")
		if strings.HasPrefix(file, "memory.swap.") && !has["swap"] {
			continue // a kernel without accounting of swap has no such file
		}
		if controller == "cgroup" || !without(controller, true) {
			if unified == nil {
				unified = map[string]string{}
			}
			unified[file] = value
		}
	}
	r.Unified = unified
	var names []string
	for c := range missing {
		names = append(names, c)
	}
	slices.Sort(names)
	return r, names
}

// Unenforced returns the limits that pods have by default and that would not be
// enforced below the cgroup at path, and why: one sentence for each cause. A limit that
// is in the result is not logged again when a container asks for it.
func (k *Supervisor) Unenforced(path string) ([]string, error) {
	has, err := controllersBelow(path)
	if err != nil {
		return nil, err
	}
	var causes []string
	byCause := map[string][]string{}
	for _, c := range usual() {
		if has[c] {
			continue
		}
		k.firstReport(c)
		cause := whyMissing(c)
		if byCause[cause] == nil {
			causes = append(causes, cause)
		}
		byCause[cause] = append(byCause[cause], c)
	}
	var out []string
	for _, cause := range causes {
		out = append(out, fmt.Sprintf("limits of %s are accepted but not enforced, because the cgroup controllers for them are missing: %s",
			strings.Join(byCause[cause], ", "), cause))
	}
	return out, nil
}

// firstReport reports whether a missing controller has not been reported before.
func (k *Supervisor) firstReport(controller string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := !k.reported[controller]
	k.reported[controller] = true
	return first
}

// enforceable returns the spec with those of its limits that can be enforced.
func (k *Supervisor) enforceable(s *Spec) (*Spec, error) {
	has, err := controllersBelow(filepath.Dir(s.Cgroup))
	if err != nil {
		return nil, err
	}
	out := *s
	var missing []string
	out.Resources, missing = s.Resources.Within(has)
	for _, c := range missing {
		if k.firstReport(c) {
			k.opts.Log.Warn("a limit of a container is not enforced, because the cgroup controller for it is missing", "controller", c, "cause", whyMissing(c))
		}
	}
	return &out, nil
}

// whyMissing returns why a controller isn't available, as far as the kernel shows it.
func whyMissing(controller string) string {
	hierarchy, known := "", false
	data, _ := os.ReadFile("/proc/cgroups") // not every kernel has it
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 4 && f[0] == controller {
			if f[3] == "0" {
				return "a parameter of the kernel (cgroup_disable) switches them off; cgroup_enable=" + controller + " may switch them on"
			}
			hierarchy, known = f[1], true
		}
	}
	switch {
	case unified() && slices.Contains(words(filepath.Join(cgroupMount, "cgroup.controllers")), controller):
		return "they can't be passed on from the root of " + cgroupMount + "; if processes are in it, move them to a cgroup of their own"
	case unified() && hierarchy != "" && hierarchy != "0":
		return "hierarchies of cgroup v1 hold them, while " + cgroupMount + " is cgroup v2; boot with cgroup v2 alone"
	case !unified() && known:
		return "their hierarchies of cgroup v1 are not mounted below " + cgroupMount
	case unified():
		return "cgroup v2 doesn't offer them here"
	}
	return "the kernel doesn't have them"
}
