package nstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// marker is the variable that marks a process inside: it has the name of the test, or
// everyTest.
const (
	marker    = "SAMPAN_NSTEST"
	everyTest = "*"
)

// NeedRoot skips a test that makes namespaces, mounts or cgroups if it may not.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make namespaces, mounts and cgroups")
	}
}

// Run calls f in a process of its own with new network and mount namespaces, in
// which lo is up, there is no way out, and mounts do not propagate. It does so by
// running the calling test a second time; what that prints is this test's output.
// It is for top-level tests, and needs root: without, the test is skipped.
func Run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if os.Getenv(marker) == t.Name() {
		if err := prepare(); err != nil {
			t.Fatal(err)
		}
		f(t)
		return
	}
	NeedRoot(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
	enter(cmd, t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in namespaces of its own: %v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// Main is for a TestMain: it runs the test program again in new network and mount
// namespaces, as [Run] does, calls run in there, and returns the exit code for
// os.Exit. Without root it calls run as things are; see [NeedRoot].
func Main(run func() int) int {
	if os.Getenv(marker) == everyTest {
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return run()
	}
	if os.Geteuid() != 0 {
		return run()
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:noctx // it lives as long as this process
	cmd.Args[0] = os.Args[0]
	enter(cmd, everyTest)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if exit, ended := errors.AsType[*exec.ExitError](err); ended {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "namespaces for the tests:", err)
		return 1
	}
	return 0
}

// enter makes cmd start in namespaces of its own.
func enter(cmd *exec.Cmd, mark string) {
	cmd.Env = append(os.Environ(), marker+"="+mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
}

func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// Mounts makes cmd start in a mount namespace of its own, in which it may mount, and
// from which nothing propagates. Who is not root gets a user namespace for that.
func Mounts(cmd *exec.Cmd) {
	// Unshare, unlike clone, makes the mounts private before the program begins.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
}
