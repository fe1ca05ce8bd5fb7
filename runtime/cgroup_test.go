package runtime_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/runtime/image/demo"
	"github.com/sampan-io/sampan/runtime/runtimetest"
)

const cgroupMount = "/sys/fs/cgroup"

// mountOver mounts something over what is at a path, until the test ends. All tests
// of this package share a mount namespace of their own and run one after the other.
func mountOver(t *testing.T, kind, path, options string) {
	t.Helper()
	nstest.NeedRoot(t)
	if err := unix.Mount(kind, path, kind, 0, options); err != nil {
		t.Fatalf("mounting %s at %s: %v", kind, path, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", path, err)
		}
	})
}

// controllersOf lists what the cgroup v2 that is mounted here can limit.
func controllersOf(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(cgroupMount, "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	return " " + strings.TrimSpace(string(data)) + " "
}

// mountV1 replaces the cgroups by those hierarchies of cgroup v1, as far as the
// kernel has them free for that.
func mountV1(t *testing.T, controllers ...string) {
	t.Helper()
	nstest.NeedRoot(t)
	// What is only covered still stands in the list of mounts, so it is taken away.
	all, err := unix.OpenTree(unix.AT_FDCWD, cgroupMount, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(cgroupMount, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.MoveMount(all, "", unix.AT_FDCWD, cgroupMount, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			t.Errorf("putting the cgroups back: %v", err)
		}
		_ = unix.Close(all)
	})
	mountOver(t, "tmpfs", cgroupMount, "mode=755")
	for _, c := range controllers {
		dir := filepath.Join(cgroupMount, c)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		mountOver(t, "cgroup", dir, c)
	}
}

// TestCgroupV2 runs the whole kit where cgroup v2 is all there is. On a machine whose
// controllers are held by cgroup v1, it is one without any that matters.
func TestCgroupV2(t *testing.T) {
	mountOver(t, "cgroup2", cgroupMount, "")
	has := controllersOf(t)
	n := newNode(t)
	before := world(t, n)
	n.start().withDemo()
	const word = "accepted but not enforced"
	unlimited := !strings.Contains(has, " memory ")
	runtimetest.Run(t, runtimetest.Target{
		Runtime: n.runtime, Images: n.images, Image: demo.Repository + ":v1", LogDir: n.path("logs"), Unlimited: unlimited,
	})
	if told := strings.Count(n.log.String(), word) > 0; told != unlimited {
		t.Errorf("the controllers are%sand the log says %q: %v", has, word, told)
	}
	if told := strings.Contains(strings.Join(n.info().GetLimitations(), "\n"), word); told != unlimited {
		t.Errorf("limitations: %q", n.info().GetLimitations())
	}
	n.terminate()
	same(t, before, world(t, n))
}

// A controller that there is gets passed on to the containers, whatever else is
// missing.
func TestControllersArePassedOn(t *testing.T) {
	mountOver(t, "cgroup2", cgroupMount, "")
	n := newNode(t).start().withDemo()
	id, _ := n.kit().Container("sleep")
	own, _, code := n.kit().Exec(id, "read", cgroupMount+"/cgroup.controllers")
	if want := strings.TrimSpace(controllersOf(t)); code != 0 || strings.TrimSpace(own) != want {
		t.Errorf("a container's cgroup has the controllers %q, want %q", own, want)
	}
	// It is all that the container sees of the hierarchy, and the container is in it.
	if out, _, code := n.kit().Exec(id, "read", "/proc/self/cgroup"); code != 0 || !strings.Contains(out, "0::/\n") {
		t.Errorf("a container is in the cgroups %q (exit code %d), want 0::/", out, code)
	}
	if out, _, code := n.kit().Exec(id, "read", cgroupMount+"/cgroup.events"); code != 0 || !strings.Contains(out, "populated 1") {
		t.Errorf("the cgroup at %s is not that of the container: %q (exit code %d)", cgroupMount, out, code) // the root has no such file
	}
}

func TestCgroupV1WithoutSomeHierarchies(t *testing.T) {
	mountV1(t, "devices", "freezer", "cpuacct")
	n := newNode(t)
	before := world(t, n)
	n.start().withDemo()
	runtimetest.Run(t, runtimetest.Target{
		Runtime: n.runtime, Images: n.images, Image: demo.Repository + ":v1", LogDir: n.path("logs"), Unlimited: true,
	})
	for word, want := range map[string]int{
		"limits of cpu, memory, pids are accepted but not enforced": 1, // in the one line at the start
		"not mounted below /sys/fs/cgroup":                          1,
		"a limit of a container is not enforced":                    0,
	} {
		if got := strings.Count(n.log.String(), word); got != want {
			t.Errorf("%q stands in the log %d times, want %d", word, got, want)
		}
	}
	// The cpuset controller is checked only when a container asks for it.
	t.Run("cpuset", func(t *testing.T) {
		k := runtimetest.NewKit(t, n.kit().Target)
		p := k.PodConfig("pinned")
		pod := k.Pod(p)
		for _, name := range []string{"first", "second"} {
			c := k.ContainerConfig(name, "echo", "fine")
			c.Linux.Resources = &cri.LinuxContainerResources{CpusetCpus: "0", MemoryLimitInBytes: 64 << 20}
			k.OutputOf(pod, p, c)
		}
	})
	if got := strings.Count(n.log.String(), "controller=cpuset"); got != 1 {
		t.Errorf("the missing cpuset controller stands in the log %d times, want once", got)
	}
	n.terminate()
	same(t, before, world(t, n))
}

func TestContainersNeedRulesForDevices(t *testing.T) {
	mountV1(t, "memory", "freezer")
	n := newNode(t)
	before := world(t, n)
	ctx := n.kit().Context()
	cmd := exec.CommandContext(ctx, built.runtime, append([]string{"serve"}, n.flags...)...)
	code, out := failing(t, cmd)
	if code != 1 || !strings.Contains(out, "devices controller") || !strings.Contains(out, "mount it at /sys/fs/cgroup/devices") {
		t.Errorf("exit code %d, %q; want 1 and what to mount", code, out)
	}
	if out, err := n.command("clean").CombinedOutput(); err != nil {
		t.Errorf("clean: %v\n%s", err, out)
	}
	same(t, before, world(t, n))
}
