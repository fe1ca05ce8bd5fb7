package runtime_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestSharedProcessesOutliveTheRuntime kills the runtime of a pod whose containers
// share their processes, and then the process that holds their namespace.
func TestSharedProcessesOutliveTheRuntime(t *testing.T) {
	n := newNode(t).start().withDemo()
	k := n.kit()
	p := k.PodConfig("shared")
	p.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	pod := k.Pod(p)
	first, _ := k.ContainerIn(pod, p, k.ContainerConfig("first", "sleep"))
	firstPid := n.pidOf(first)

	n.kill()
	n.start()
	k = n.kit()
	if got := n.pidOf(first); got != firstPid {
		t.Errorf("the container has process %d after the restart, want %d", got, firstPid)
	}
	second, _ := k.ContainerIn(pod, p, k.ContainerConfig("second", "sleep"))
	ns := func(pid int) string {
		name, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/pid")
		if err != nil {
			t.Error(err)
		}
		return name
	}
	if a, b := ns(firstPid), ns(n.pidOf(second)); a != b {
		t.Errorf("the containers have the PID namespaces %s and %s, want one", a, b)
	}

	if err := syscall.Kill(holder(t, ns(firstPid)), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{first, second} {
		if st := k.Ended(id); st.GetExitCode() != 137 {
			t.Errorf("a container of the pod: %v, want one that was killed", st)
		}
	}
	stream := k.Watch(k.Context())
	for {
		st, err := n.runtime.PodSandboxStatus(k.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: pod})
		if err != nil {
			t.Fatal(err)
		}
		if st.GetStatus().GetState() == cri.PodSandboxState_SANDBOX_NOTREADY {
			break
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatalf("waiting for the end of the sandbox, which is %v: %v", st.GetStatus().GetState(), err)
		}
	}
}

// holder returns process 1 of a PID namespace, as the host sees it.
func holder(t *testing.T, ns string) int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		data, err := os.ReadFile(filepath.Join(dir, "status"))
		name, linkErr := os.Readlink(filepath.Join(dir, "ns/pid"))
		if err != nil || linkErr != nil || name != ns {
			continue
		}
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); f[0] == "NSpid:" && f[len(f)-1] == "1" {
				pid, err := strconv.Atoi(filepath.Base(dir))
				if err != nil {
					t.Fatal(err)
				}
				return pid
			}
		}
	}
	t.Fatalf("%s has no process 1", ns)
	return 0
}

// TestBidirectionalMounts mounts something in a container, in a directory of the host.
func TestBidirectionalMounts(t *testing.T) {
	n := newNode(t).start().withDemo()
	k := n.kit()
	p := k.PodConfig("mounts")
	pod := k.Pod(p)
	dir := t.TempDir()
	c := k.ContainerConfig("main", "sleep")
	c.Linux.SecurityContext.Privileged = true
	c.Mounts = []*cri.Mount{{ContainerPath: "/data", HostPath: dir, Propagation: cri.MountPropagation_PROPAGATION_BIDIRECTIONAL}}
	_, err := n.runtime.CreateContainer(k.Context(), &cri.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: p})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "not a shared mount") {
		t.Errorf("CreateContainer in a private mount: %v, want InvalidArgument", err)
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	id, _ := k.ContainerIn(pod, p, c)
	in := k.ContainerConfig("other", "sleep")
	in.Mounts = []*cri.Mount{{ContainerPath: "/data", HostPath: dir, Propagation: cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}}
	other, _ := k.ContainerIn(pod, p, in)

	mountIn(t, n.pidOf(id), "/data/sub")
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "sub"), unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(dir, "sub", "file"), []byte("on the mount\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]string{"container": id, "other container": other} {
		if out, errs, code := k.Exec(id, "read", "/data/sub/file"); code != 0 || out != "on the mount\n" {
			t.Errorf("the %s reads %q %q %d, want what the host wrote", name, out, errs, code)
		}
	}
	// Nothing else of a container shows on the host.
	mountIn(t, n.pidOf(id), "/tmp")
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(mounts), "from-test "); got != 1 {
		t.Errorf("%d mounts of containers on the host, want 1:\n%s", got, mounts)
	}
}

// The main goroutine keeps the main thread, so that mountIn can't take it: Go would not
// end it.
func init() { runtime.LockOSThread() }

// mountIn mounts a tmpfs where only the process with this id and what it shares
// mounts with can see it.
func mountIn(t *testing.T, pid int, path string) {
	t.Helper()
	done := make(chan error)
	go func() { // the thread ends with this goroutine, in the container's namespace
		runtime.LockOSThread()
		done <- func() error {
			ns, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/mnt")
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return err
			}
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
				return err
			}
			return unix.Mount("from-test", path, "tmpfs", 0, "")
		}()
	}()
	if err := <-done; err != nil {
		t.Fatalf("mounting in the container: %v", err)
	}
}
