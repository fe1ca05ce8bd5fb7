package runtimetest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/nftables"
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

// World describes what a runtime could leave behind: mounts, links, routes, nftables
// tables, settings, and cgroups with the given name. Compare it before and after.
func World(cgroup string) (string, error) {
	var lines []string
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		lines = append(lines, "mount "+strings.TrimSpace(line))
	}
	links, err := netlink.LinkList()
	if err != nil {
		return "", err
	}
	for _, l := range links {
		lines = append(lines, "link "+l.Attrs().Name)
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return "", err
	}
	for _, r := range routes {
		lines = append(lines, "route "+r.String())
	}
	c, err := nftables.New()
	if err != nil {
		return "", err
	}
	tables, err := c.ListTables()
	if err != nil {
		return "", err
	}
	for _, t := range tables {
		lines = append(lines, "table "+t.Name)
	}
	forward, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if err != nil {
		return "", err
	}
	lines = append(lines, "ip_forward "+strings.TrimSpace(string(forward)))
	err = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), cgroup) {
			lines = append(lines, "cgroup "+p)
		}
		return nil //nolint:nilerr // others' cgroups come and go
	})
	if err != nil {
		return "", err
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}
