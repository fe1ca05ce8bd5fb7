package runtime_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestPodHasUsersOfItsOwn runs containers as root users without rights on the host.
func TestPodHasUsersOfItsOwn(t *testing.T) {
	n := newNode(t)
	for _, dir := range []string{n.dir, filepath.Dir(n.dir)} {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	n.start().withDemo()
	k := n.kit()
	st, err := n.runtime.Status(k.Context(), &cri.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !st.GetRuntimeHandlers()[0].GetFeatures().GetUserNamespaces() {
		t.Skip("the file system of the test's directory does not map the owners of files")
	}
	const host, size = 1 << 20, 65536
	ids := []*cri.IDMapping{{HostId: host, Length: size}}
	users := &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: ids, Gids: ids}
	p := k.PodConfig("users")
	p.Linux.SecurityContext.NamespaceOptions.UsernsOptions = users
	p.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	pod := k.Pod(p)

	volume := t.TempDir()
	if err := os.Chmod(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	config := func(name string, args ...string) *cri.ContainerConfig {
		c := k.ContainerConfig(name, args...)
		c.Linux.SecurityContext.NamespaceOptions = p.GetLinux().GetSecurityContext().GetNamespaceOptions()
		c.Mounts = append(c.GetMounts(), &cri.Mount{HostPath: volume, ContainerPath: "/volume", UidMappings: ids, GidMappings: ids})
		return c
	}
	if got := strings.Fields(k.OutputOf(pod, p, config("map", "read", "/proc/self/uid_map"))); strings.Join(got, " ") != "0 1048576 65536" {
		t.Errorf("users are %v", got)
	}
	for _, path := range []string{"/volume/file", "/file", "/dev/shm/file"} {
		id, log := k.ContainerIn(pod, p, config("write"+strings.ReplaceAll(path, "/", "-"), "write", path, "word"))
		if got := k.Ended(id); got.GetExitCode() != 0 {
			t.Errorf("writing %s: %s", path, k.Log(log, "stderr"))
		}
	}
	info, err := os.Stat(filepath.Join(volume, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != 0 {
		t.Errorf("the file in the volume belongs to user %d, want 0: owners are mapped", uid)
	}
	sleeper, _ := k.ContainerIn(pod, p, config("sleeper", "sleep"))
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(n.pidOf(sleeper)), "status"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(status), "\nUid:\t1048576\t") {
		t.Errorf("on the host the process is\n%s", status)
	}
	// A command in a container can open its own output.
	if out, errs, code := k.Exec(sleeper, "write", "/dev/stdout", "word"); strings.TrimSpace(out) != "word" || code != 0 {
		t.Errorf("a command that writes to /dev/stdout says %q, %q, and exits with %d", out, errs, code)
	}
	// The pod has no rights on the kernel's settings.
	id, _ := k.ContainerIn(pod, p, config("escape", "write", "/proc/sys/kernel/core_pattern", "x"))
	if got := k.Ended(id); got.GetExitCode() == 0 {
		t.Error("the pod could change the kernel's core pattern")
	}
}

// A mapping that is not the pod's, and ids of the host's root user, are refused.
func TestUsersOfPodsAreChecked(t *testing.T) {
	n := newNode(t).start()
	k := n.kit()
	for name, ids := range map[string][]*cri.IDMapping{
		"root":     {{HostId: 0, Length: 65536}},
		"overflow": {{HostId: 1 << 31, Length: 1 << 31}},
		"shifted":  {{HostId: 65536, ContainerId: 1, Length: 65536}},
		"two":      {{HostId: 65536, Length: 10}, {HostId: 131072, ContainerId: 10, Length: 10}},
		"none":     nil,
	} {
		p := k.PodConfig(name)
		p.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: ids, Gids: ids}
		if _, err := n.runtime.RunPodSandbox(k.Context(), &cri.RunPodSandboxRequest{Config: p}); err == nil || !strings.Contains(err.Error(), "user namespaces: want") {
			t.Errorf("%s: %v, want an error about the range", name, err)
		}
	}
}
