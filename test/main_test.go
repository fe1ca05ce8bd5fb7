package test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/test/session"
)

// The programs under test, built once.
var sampanProgram, kubectlProgram string

// TestMain runs everything in network, mount and process namespaces of its own,
// with no way out, when it is root; others test simulated nodes alone. Whatever
// becomes of the tests, no process of theirs outlives them.
func TestMain(m *testing.M) {
	code, err := prepareAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// isolated says how far inside this process is: not set, then the first process
// of the namespaces, then the tests.
const isolated = "SAMPAN_TEST_ISOLATED"

func prepareAndRun(m *testing.M) (int, error) {
	switch os.Getenv(isolated) {
	case "":
		if err := build(); err != nil {
			return 1, err
		}
		if os.Getuid() == 0 {
			return enter()
		}
	case "first":
		if err := isolate(); err != nil {
			return 1, err
		}
		return reap()
	}
	sampanProgram, kubectlProgram = os.Getenv("SAMPAN"), os.Getenv("KUBECTL")
	return m.Run(), nil
}

// build makes the programs, unless the environment says where they are.
func build() error {
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	if os.Getenv("SAMPAN") == "" {
		if out, err := exec.Command("make", "-C", root, "build").CombinedOutput(); err != nil {
			return fmt.Errorf("building sampan: %w\n%s", err, out)
		}
		if err := os.Setenv("SAMPAN", filepath.Join(root, "bin", "sampan")); err != nil {
			return err
		}
	}
	if os.Getenv("KUBECTL") == "" {
		kubectl := filepath.Join(root, "bin", "kubectl")
		cmd := exec.Command("go", "build", "-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37", "-o", kubectl, "./kubectl")
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building kubectl: %w\n%s", err, out)
		}
		return os.Setenv("KUBECTL", kubectl)
	}
	return nil
}

// homes are where clusters live on a machine. The tests see empty ones.
var homes = []string{"/run/sampan", "/var/lib/sampan"}

// homesDir says where the empty ones are.
const homesDir = "SAMPAN_TEST_HOMES"

// enter runs this program once more as the first process of namespaces of its
// own, and removes what the tests wrote.
func enter() (code int, err error) {
	dir, err := os.MkdirTemp("", "sampan-test-homes-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, sweep(filepath.Join(dir, "run")), os.RemoveAll(dir)) }()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), isolated+"=first", homesDir+"="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	return session.ExitCode(cmd.Run())
}

// sweep removes the cgroups of the clusters that have a directory in run: those of
// tests that were ended by force. Nothing is in them any more.
func sweep(run string) error {
	clusters, err := os.ReadDir(run)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, c := range clusters {
		roots, err := filepath.Glob("/sys/fs/cgroup/*/sampan-" + c.Name()) // version 1
		errs = append(errs, err)
		for _, root := range append(roots, "/sys/fs/cgroup/sampan-"+c.Name()) {
			var dirs []string
			_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil // what is not there needs not go
			})
			for _, d := range slices.Backward(dirs) {
				errs = append(errs, os.Remove(d))
			}
		}
	}
	return errors.Join(errs...)
}

func isolate() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	for _, home := range homes {
		empty := filepath.Join(os.Getenv(homesDir), filepath.Base(filepath.Dir(home)))
		for _, dir := range []string{home, empty} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount(empty, home, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting an empty %s: %w", home, err)
		}
	}
	// Drivers of devices write files for the container runtime here.
	if err := os.MkdirAll("/run/cdi", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run/cdi", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mounting an empty /run/cdi: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// reap runs the tests and, as the first process of a machine does, takes in the
// processes that lost their parent. What still runs after the tests ends with
// this process.
func reap() (int, error) {
	if err := os.Setenv(isolated, "yes"); err != nil {
		return 1, err
	}
	tests, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return 1, err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 1, fmt.Errorf("waiting for the tests: %w", err)
		case pid != tests.Pid:
		case status.Signaled():
			return 1, fmt.Errorf("the tests were ended by signal %v", status.Signal())
		default:
			return status.ExitStatus(), nil
		}
	}
}
