// Package nstest runs a test in namespaces of its own, so that the interfaces,
// rules and mounts that it makes can't be seen by, or leak into, the machine.
//
// It is a test kit: only tests import it.
package nstest

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const marker = "SAMPAN_NSTEST"

// Run calls f in a process of its own with new network and mount namespaces, in
// which lo is up, there is no way out, and mounts do not propagate. It does so by
// running the calling test a second time; what that prints is this test's output.
// It is for top-level tests, and needs root: without, the test is skipped.
func Run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if os.Getenv(marker) == t.Name() {
		prepare(t)
		f(t)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to make network and mount namespaces")
	}
	args := []string{"-test.run=^" + t.Name() + "$", "-test.count=1", "-test.v"}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), marker+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Pdeathsig:  syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in namespaces of its own: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func prepare(t *testing.T) {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatalf("making mounts private: %v", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
}
