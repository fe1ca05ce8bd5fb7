package podcgroup

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fake returns a tree whose cgroups are in a map.
func fake(t *testing.T) (*Tree, map[string]*cgroups.Resources) {
	t.Helper()
	made := map[string]*cgroups.Resources{}
	tree := newTree("/node", false,
		func(path string, r *cgroups.Resources) error { made[path] = r; return nil },
		func(path string) error { delete(made, path); return nil },
	)
	if err := tree.open(&cri.LinuxContainerResources{CpuShares: 4096, MemoryLimitInBytes: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	return tree, made
}

func shares(made map[string]*cgroups.Resources) map[string]uint64 {
	all := map[string]uint64{}
	for path, r := range made {
		all[path] = r.CpuShares
	}
	return all
}

func TestTreeIsArrangedLikeKubelets(t *testing.T) {
	tree, made := fake(t)
	for uid, one := range map[string]struct {
		qos    corev1.PodQOSClass
		shares int64
	}{"g": {corev1.PodQOSGuaranteed, 1024}, "b": {corev1.PodQOSBurstable, 512}, "c": {corev1.PodQOSBurstable, 256}, "e": {corev1.PodQOSBestEffort, 2}} {
		limits := &cri.LinuxContainerResources{CpuShares: one.shares, MemoryLimitInBytes: 1 << 20}
		if err := tree.Set(types.UID(uid), one.qos, limits, 0); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]uint64{
		"/node/kubepods": 4096, "/node/kubepods/podg": 1024,
		"/node/kubepods/burstable": 768, "/node/kubepods/burstable/podb": 512, "/node/kubepods/burstable/podc": 256,
		"/node/kubepods/besteffort": 2, "/node/kubepods/besteffort/pode": 2,
	}
	if d := cmp.Diff(want, shares(made)); d != "" {
		t.Errorf("CPU shares (-want +got):\n%s", d)
	}
	if made["/node/kubepods/podg"].Memory != 1<<20 || !made["/node/kubepods/podg"].SkipDevices {
		t.Errorf("resources of a pod are %+v", made["/node/kubepods/podg"])
	}
	if err := tree.Remove("b"); err != nil {
		t.Fatal(err)
	}
	if got := made["/node/kubepods/burstable"].CpuShares; got != 256 {
		t.Errorf("burstable pods have %d shares after one has left, want 256", got)
	}
}

func TestTreeReportsWhichCgroupFails(t *testing.T) {
	tree, _ := fake(t)
	no := errors.New("no space")
	tree.make = func(string, *cgroups.Resources) error { return no }
	err := tree.Set("x", corev1.PodQOSGuaranteed, &cri.LinuxContainerResources{}, 0)
	if !errors.Is(err, no) || err.Error() != "cgroup /node/kubepods/podx: no space" {
		t.Errorf("error %v", err)
	}
}

func TestPodsHaveALimitOfProcesses(t *testing.T) {
	tree, made := fake(t)
	if err := tree.Set("free", corev1.PodQOSGuaranteed, nil, 0); err != nil {
		t.Fatal(err)
	}
	tree.pids = 50
	if err := tree.Set("bound", corev1.PodQOSBurstable, nil, 0); err != nil {
		t.Fatal(err)
	}
	if made["/node/kubepods/podfree"].PidsLimit != nil || made["/node/kubepods/burstable"].PidsLimit != nil {
		t.Error("a cgroup has a limit of processes that has none")
	}
	if got := made["/node/kubepods/burstable/podbound"].PidsLimit; got == nil || *got != 50 {
		t.Errorf("the limit of processes is %v, want 50", got)
	}
	if got := within(made["/node/kubepods/burstable/podbound"], func(controller string) bool { return controller != "pids" }); got.PidsLimit != nil {
		t.Error("a limit without its controller is kept")
	}
}

// TestTreeProtectsMemory has the files of cgroup v2 for pods of which memory is protected. A cgroup gives those below it no more than
// it has itself.
func TestTreeProtectsMemory(t *testing.T) {
	tree, made := fake(t)
	tree.unified = true
	files := func(path string) string {
		return made[path].Unified["memory.min"] + " " + made[path].Unified["memory.low"]
	}
	check := func(want map[string]string) {
		t.Helper()
		for path, both := range want {
			if got := files(path); got != both {
				t.Errorf("%s has memory.min and memory.low %q, want %q", path, got, both)
			}
		}
	}
	for uid, one := range map[string]struct {
		qos    corev1.PodQOSClass
		memory int64
	}{"g": {corev1.PodQOSGuaranteed, 100}, "b": {corev1.PodQOSBurstable, 20}, "c": {corev1.PodQOSBurstable, 3}, "e": {corev1.PodQOSBestEffort, 0}} {
		limits := &cri.LinuxContainerResources{Unified: map[string]string{"memory.high": "max"}}
		if err := tree.Set(types.UID(uid), one.qos, limits, one.memory); err != nil {
			t.Fatal(err)
		}
	}
	check(map[string]string{
		"/node/kubepods": "123 23", "/node/kubepods/burstable": "0 23", "/node/kubepods/podg": "100 0",
		"/node/kubepods/burstable/podb": "0 20", "/node/kubepods/burstable/podc": "0 3", "/node/kubepods/besteffort/pode": "0 0",
	})
	if hard, soft := tree.Protected(); hard != 100 || soft != 23 {
		t.Errorf("%d and %d bytes are protected, want 100 and 23", hard, soft)
	}
	if got := made["/node/kubepods/podg"].Unified["memory.high"]; got != "max" {
		t.Errorf("memory.high of a pod is %q, want that of its limits", got)
	}
	// A resize, and the end of a pod.
	if err := errors.Join(tree.Set("g", corev1.PodQOSGuaranteed, nil, 50), tree.Remove("b")); err != nil {
		t.Fatal(err)
	}
	check(map[string]string{"/node/kubepods": "53 3", "/node/kubepods/burstable": "0 3", "/node/kubepods/podg": "50 0"})
	without := within(made["/node/kubepods/podg"], func(controller string) bool { return controller != "memory" })
	if len(without.Unified) > 0 {
		t.Errorf("without the controller the files %v are kept", without.Unified)
	}
}
