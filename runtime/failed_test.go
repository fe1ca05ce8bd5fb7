package runtime

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/nstest"
)

// A pod that couldn't be made, and whose remains couldn't be removed, doesn't keep its
// name from the next try.
func TestAFailedPodMayBeTriedAgain(t *testing.T) {
	nstest.NeedRoot(t)
	dir := t.TempDir()
	s, err := New(Options{
		Socket: filepath.Join(dir, "s"), Root: filepath.Join(dir, "root"), State: dir, Cgroup: "sampan-test-failed",
		Bridge: "spf0", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.94.0.0/24")}, Table: "sampan-test-failed",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.network.Close)
	host := cri.NamespaceMode_NODE
	try := func() (string, error) {
		res, err := s.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{
			Metadata: &cri.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u"},
			Linux: &cri.LinuxPodSandboxConfig{
				CgroupParent:    "/sampan-test-failed",
				SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: host, Ipc: host, Pid: host}},
			},
		}})
		return res.GetPodSandboxId(), err
	}
	// A file in the way lets both fail, the making and the removing.
	if err := os.WriteFile(s.podDir(""), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := try(); err == nil || !strings.Contains(err.Error(), "creating the pod sandbox") || !strings.Contains(err.Error(), "and cleaning up") {
			t.Fatalf("RunPodSandbox = %v, want both errors", err)
		}
	}
	if err := os.Remove(s.podDir("")); err != nil {
		t.Fatal(err)
	}
	id, err := try()
	if err != nil {
		t.Fatalf("when nothing is in the way any more: %v", err)
	}
	if _, err := try(); err == nil || !strings.Contains(err.Error(), "has the sandbox "+id+" already") {
		t.Errorf("once more: %v, want that it is there already", err)
	}
	if all := s.listPods(); len(all) != 1 || all[0].record.ID != id {
		t.Errorf("%d pods are known, want the one that was made", len(all))
	}
}

func TestALockThatCouldNotBeWrittenIsReleased(t *testing.T) {
	nstest.NeedRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("disk", dir, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	full := filepath.Join(dir, "full")
	if err := os.WriteFile(full, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lockState(dir, nil); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Fatalf("on a full disk: %v, want an error that says so", err)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	lock, err := lockState(dir, nil)
	if err != nil {
		t.Fatalf("when there is space again: %v", err)
	}
	_ = lock.Close()
}
