package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The programs under test, built once.
var sampanProgram, kubectlProgram string

// TestMain runs everything in network and mount namespaces of its own, with no way
// out, when it is root; others test simulated nodes alone.
func TestMain(m *testing.M) {
	code, err := prepareAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const isolated = "SAMPAN_TEST_ISOLATED"

func prepareAndRun(m *testing.M) (int, error) {
	if os.Getenv(isolated) == "" {
		if err := build(); err != nil {
			return 1, err
		}
		if os.Getuid() == 0 {
			return again()
		}
	} else if err := isolate(); err != nil {
		return 1, err
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

// again runs this program once more in namespaces of its own.
func again() (int, error) {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), isolated+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

func isolate() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}
