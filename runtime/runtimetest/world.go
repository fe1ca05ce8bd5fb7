package runtimetest

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// insideVariable marks the process that runs in the namespaces of its own.
const insideVariable = "SAMPAN_TEST_WORLD"

// Main runs tests that touch the kernel in a world of their own: it executes the
// test program again, in new mount and network namespaces, with no way out of the
// machine, and returns the exit code for os.Exit. What the tests leave behind in
// there ends with it; cgroups can't be had privately, so tests give theirs unique
// names. Without root it runs the tests as they are; see [NeedRoot].
func Main(run func() int) int {
	if os.Geteuid() != 0 || os.Getenv(insideVariable) != "" {
		return run()
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:noctx // it lives as long as this process
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if cmd.ProcessState != nil {
		return cmd.ProcessState.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "a world for the tests:", err)
	return 1
}

// Settle prepares the new world: mounts don't reach the old one, and the loopback
// device is up.
func Settle() error {
	if os.Getenv(insideVariable) == "" {
		return nil
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// NeedRoot skips a test that can't work without root, and says so.
func NeedRoot(t interface {
	Helper()
	Skip(args ...any)
},
) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this test makes namespaces, mounts and cgroups: it needs root")
	}
}
