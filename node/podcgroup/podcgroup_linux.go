//go:build !portable

package podcgroup

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The least share of CPU time that the kernel gives, and the most.
const (
	minShares = 2
	maxShares = 262144
)

// unlimited is more than any machine has, and less than what overflows in the kernel.
const unlimited = 1 << 62

// unifiedMount is where cgroup v2 is mounted.
const unifiedMount = "/sys/fs/cgroup"

// A Tree is the cgroups of the pods of one node. It is safe for concurrent use.
type Tree struct {
	pids    int64  // how many processes a pod may have; 0 means as many as the node
	root    string // of the node's cgroups, below the mount points of the hierarchies
	unified bool   // cgroup v2
	make    func(path string, r *cgroups.Resources) error
	drop    func(path string) error

	mu        sync.Mutex
	burstable map[types.UID]uint64 // guarded by mu; CPU shares of the pods of that class
	protected map[types.UID]amount // guarded by mu; of the pods whose memory is protected
}

// An amount is protected memory, in bytes: of Guaranteed pods (memory.min), or of others (memory.low).
type amount struct{ min, low int64 }

// files returns the amount as files of cgroup v2.
func (a amount) files() map[string]string {
	return map[string]string{"memory.min": strconv.FormatInt(a.min, 10), "memory.low": strconv.FormatInt(a.low, 10)}
}

// Open makes the cgroups above those of pods, below the cgroup at the path root, which it makes if it does not exist. Node is what the pods
// of the node may use together; pids is how many processes and threads each of them may have, and 0 or less means no limit.
func Open(root string, node *cri.LinuxContainerResources, pids int64) (*Tree, error) {
	t := newTree(root, Unified(), set, remove)
	t.pids = max(0, pids)
	return t, t.open(node)
}

func newTree(root string, unified bool, create func(path string, r *cgroups.Resources) error, drop func(path string) error) *Tree {
	return &Tree{root: root, unified: unified, make: create, drop: drop, burstable: map[types.UID]uint64{}, protected: map[types.UID]amount{}}
}

func (t *Tree) open(node *cri.LinuxContainerResources) error {
	for _, c := range []struct {
		path   string
		limits *cri.LinuxContainerResources
	}{
		{t.top(), node},
		{t.class(corev1.PodQOSBurstable), &cri.LinuxContainerResources{CpuShares: minShares}},
		{t.class(corev1.PodQOSBestEffort), &cri.LinuxContainerResources{CpuShares: minShares}},
	} {
		r := resources(c.limits)
		if t.unified {
			r.Unified = amount{}.files() // an agent with another configuration may have left others
		}
		for _, size := range cgroups.HugePageSizes() { // pods are limited one by one
			r.HugetlbLimit = append(r.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: size, Limit: unlimited})
		}
		if err := t.make(c.path, r); err != nil {
			return fmt.Errorf("cgroup %s: %w", c.path, err)
		}
	}
	return nil
}

// Find returns the path of the cgroup with the given name: at the root of the hierarchies, or below the cgroup of this
// process. It returns "" if there is none.
func Find(name string) string {
	mount, err := members()
	if err != nil {
		return ""
	}
	places := []string{filepath.Join("/", name)}
	if own, err := cgroups.ParseCgroupFile("/proc/self/cgroup"); err == nil {
		places = append(places, filepath.Join("/", cmp.Or(own[""], own["memory"], own["devices"]), name))
	}
	for _, p := range places {
		if info, err := os.Stat(filepath.Join(mount, p)); err == nil && info.IsDir() {
			return p
		}
	}
	return ""
}

// members returns the mount point of a hierarchy in which every container has its cgroup.
func members() (string, error) {
	if cgroups.IsCgroup2UnifiedMode() {
		return unifiedMount, nil
	}
	mounts, err := cgroups.GetCgroupMounts(false)
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if slices.Contains(m.Subsystems, "devices") {
			return m.Mountpoint, nil
		}
	}
	return "", errors.New("no hierarchy of cgroups has the devices controller")
}

// Unified reports whether the machine has cgroup v2 alone.
func Unified() bool { return cgroups.IsCgroup2UnifiedMode() }

// LimitsProcessors reports whether the kernel can limit the processors of cgroups below the one at path.
func LimitsProcessors(path string) bool {
	if Unified() {
		return has(filepath.Join(unifiedMount, path), "cpuset")
	}
	_, err := cgroups.FindCgroupMountpoint("", "cpuset")
	return err == nil
}

// LimitsSwap reports whether the kernel can limit the swap of cgroups below the one at path: of cgroup v2 each has a limit of its
// own, of cgroup v1 one of memory and swap together.
func LimitsSwap(path string) bool {
	if Unified() {
		dirs := []string{filepath.Join(unifiedMount, path)} // the root of the hierarchy has no limits
		if own, err := cgroups.ParseCgroupFile("/proc/self/cgroup"); err == nil {
			dirs = append(dirs, filepath.Join(unifiedMount, own[""]))
		}
		return slices.ContainsFunc(dirs, func(dir string) bool { return cgroups.PathExists(filepath.Join(dir, "memory.swap.max")) })
	}
	mount, err := cgroups.FindCgroupMountpoint("", "memory")
	return err == nil && cgroups.PathExists(filepath.Join(mount, "memory.memsw.limit_in_bytes"))
}

func (t *Tree) top() string { return filepath.Join(t.root, "kubepods") }

// class returns the cgroup of the pods of a class.
func (t *Tree) class(qos corev1.PodQOSClass) string {
	if qos == corev1.PodQOSGuaranteed {
		return t.top()
	}
	return filepath.Join(t.top(), strings.ToLower(string(qos)))
}

// Path returns the path of a pod's cgroup, below the mount points of the hierarchies.
func (t *Tree) Path(uid types.UID, qos corev1.PodQOSClass) string {
	return filepath.Join(t.class(qos), "pod"+string(uid))
}

// Set makes the cgroup of a pod, or changes its limits. Protected is how much of its memory is protected, in bytes; only cgroup v2
// can do that.
func (t *Tree) Set(uid types.UID, qos corev1.PodQOSClass, limits *cri.LinuxContainerResources, protected int64) error {
	path := t.Path(uid, qos)
	r := resources(limits)
	of := amount{low: protected}
	if qos == corev1.PodQOSGuaranteed {
		of = amount{min: protected}
	}
	if t.unified {
		r.Unified = of.files()
		maps.Copy(r.Unified, limits.GetUnified())
	}
	if t.pids > 0 {
		r.PidsLimit = &t.pids
	}
	if err := t.make(path, r); err != nil {
		return fmt.Errorf("cgroup %s: %w", path, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if qos == corev1.PodQOSBurstable {
		t.burstable[uid] = uint64(max(0, limits.GetCpuShares()))
		if err := t.balance(); err != nil {
			return err
		}
	}
	return t.protect(uid, of)
}

// Remove removes the cgroup of a pod. One that is not there is no error; processes in it are.
func (t *Tree) Remove(uid types.UID) error {
	var errs []error
	for _, qos := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		errs = append(errs, t.drop(t.Path(uid, qos)))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, counted := t.burstable[uid]; counted {
		delete(t.burstable, uid)
		errs = append(errs, t.balance())
	}
	errs = append(errs, t.protect(uid, amount{}))
	return errors.Join(errs...)
}

// balance gives all burstable pods together the CPU time that they request. The caller holds mu.
func (t *Tree) balance() error {
	var sum uint64
	for _, shares := range t.burstable {
		sum += shares
	}
	path := t.class(corev1.PodQOSBurstable)
	if err := t.make(path, resources(&cri.LinuxContainerResources{CpuShares: int64(min(max(sum, minShares), maxShares))})); err != nil {
		return fmt.Errorf("cgroup %s: %w", path, err)
	}
	return nil
}

// protect records how much memory of a pod is protected, and protects that of all pods in the cgroups above them. The kernel
// protects no more of a cgroup than the ones above it have. The caller holds mu.
func (t *Tree) protect(uid types.UID, of amount) error {
	if !t.unified || t.protected[uid] == of {
		return nil
	}
	t.protected[uid] = of
	if of == (amount{}) {
		delete(t.protected, uid)
	}
	sum := t.sum()
	for path, a := range map[string]amount{
		t.class(corev1.PodQOSBurstable): {low: sum.low},
		t.top():                         {min: sum.min + sum.low, low: sum.low},
	} {
		r := resources(nil)
		r.Unified = a.files()
		if err := t.make(path, r); err != nil {
			return fmt.Errorf("cgroup %s: %w", path, err)
		}
	}
	return nil
}

// sum returns the protected memory of all pods. The caller holds mu.
func (t *Tree) sum() (sum amount) {
	for _, a := range t.protected {
		sum.min += a.min
		sum.low += a.low
	}
	return sum
}

// Protected returns how much memory of all pods, in bytes, is protected by memory.min and by memory.low.
func (t *Tree) Protected() (hard, soft int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.sum()
	return sum.min, sum.low
}

// resources translates limits. The use of devices is not limited here: containers have rules of their own.
func resources(l *cri.LinuxContainerResources) *cgroups.Resources {
	r := &cgroups.Resources{
		CpuShares: uint64(max(0, l.GetCpuShares())), CpuQuota: l.GetCpuQuota(), CpuPeriod: uint64(max(0, l.GetCpuPeriod())),
		Memory: l.GetMemoryLimitInBytes(), Unified: l.GetUnified(), SkipDevices: true, SkipFreezeOnSet: true,
		MemoryCheckBeforeUpdate: true, // cgroup v2 would kill processes for a limit below what is in use; v1 refuses it
	}
	if Unified() {
		r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(r.CpuShares)
	}
	for _, h := range l.GetHugepageLimits() {
		r.HugetlbLimit = append(r.HugetlbLimit, &cgroups.HugepageLimit{Pagesize: h.GetPageSize(), Limit: h.GetLimit()})
	}
	return r
}

// newManager returns what writes a cgroup itself. The library's own choice also knows cgroups that systemd writes, with a client
// of D-Bus.
func newManager(c *cgroups.Cgroup) (cgroups.Manager, error) {
	if Unified() {
		return fs2.NewManager(c, "")
	}
	return fs.NewManager(c, nil)
}

// set makes the cgroup at path in every hierarchy, and limits it.
func set(path string, r *cgroups.Resources) error {
	m, err := newManager(&cgroups.Cgroup{Path: path, Resources: r})
	if err != nil {
		return err
	}
	if err := m.Apply(-1); err != nil { // no process is put there
		return err
	}
	return m.Set(within(r, func(controller string) bool { return enforces(m, controller) }))
}

// enforces reports whether a controller limits the processes of a cgroup.
func enforces(m cgroups.Manager, controller string) bool {
	if !Unified() {
		return m.Path(controller) != ""
	}
	return has(m.Path(""), controller)
}

// has reports whether a controller limits the processes of the cgroup of version 2 in a directory.
func has(dir, controller string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(b)), controller)
}

// within returns those of the limits that controllers of the machine enforce.
func within(r *cgroups.Resources, enforces func(controller string) bool) *cgroups.Resources {
	out := *r
	if !enforces("cpu") {
		out.CpuShares, out.CpuWeight, out.CpuQuota, out.CpuPeriod = 0, 0, 0, 0
	}
	if !enforces("memory") {
		out.Memory = 0
		out.Unified = maps.Clone(r.Unified)
		maps.DeleteFunc(out.Unified, func(file, _ string) bool { return strings.HasPrefix(file, "memory.") })
	}
	if !enforces("pids") {
		out.PidsLimit = nil
	}
	if !enforces("hugetlb") {
		out.HugetlbLimit = nil
	}
	return &out
}

// remove removes the cgroup at path and those below it from every hierarchy; it may be in a few of them only.
func remove(path string) error {
	m, err := newManager(&cgroups.Cgroup{Path: path, Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		return err
	}
	if err := m.Destroy(); err != nil {
		return fmt.Errorf("cgroup %s: %w", path, err)
	}
	return nil
}
