package test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// leftOf lists everything on this machine that bears the name of a cluster:
// processes, by command line and cgroup; cgroups; mounts; links; nftables tables;
// the run directory.
func leftOf(name string) ([]string, error) {
	var left []string
	for _, look := range []func(string) ([]string, error){processesOf, cgroupsOf, mountsOf, linksOf, tablesOf, runOf} {
		found, err := look(name)
		if err != nil {
			return nil, err
		}
		left = append(left, found...)
	}
	return left, nil
}

func processesOf(name string) ([]string, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, dir := range dirs {
		// Processes come and go; one that is gone is not left.
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		args = bytes.ReplaceAll(bytes.TrimRight(args, "\x00"), []byte{0}, []byte{' '})
		ours := bytes.HasPrefix(args, []byte(os.Args[0]))
		if !ours && (bytes.Contains(args, []byte(name)) || bytes.Contains(groups, []byte("sampan-"+name))) {
			found = append(found, fmt.Sprintf("process %s: %s", filepath.Base(dir), args))
		}
	}
	return found, nil
}

// containerOf returns the process of the container of a cluster that runs a
// command.
func containerOf(name, command string) (int, error) {
	all, err := processesOf(name)
	if err != nil {
		return 0, err
	}
	for _, line := range all {
		pid, args, _ := strings.Cut(strings.TrimPrefix(line, "process "), ": ")
		if args == command {
			return strconv.Atoi(pid)
		}
	}
	return 0, fmt.Errorf("no process of cluster %s runs %q; there is\n%s", name, command, strings.Join(all, "\n"))
}

func cgroupsOf(name string) ([]string, error) {
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // cgroups of others come and go, too
			return nil
		case err != nil:
			return err
		case d.IsDir() && strings.Contains(d.Name(), name):
			found = append(found, "cgroup "+path)
			return fs.SkipDir
		}
		return nil
	})
	return found, err
}

func mountsOf(name string) ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	var found []string
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, name) {
			found = append(found, "mount "+strings.TrimSpace(line))
		}
	}
	return found, err
}

// whole reads a list of the kernel, and again if it changed meanwhile: other sessions have clusters.
func whole[T any](read func() (T, error)) (list T, err error) {
	for range 20 {
		if list, err = read(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return list, err
}

func linksOf(name string) ([]string, error) {
	links, err := whole(netlink.LinkList)
	var found []string
	for _, l := range links {
		if strings.Contains(l.Attrs().Name, name) {
			found = append(found, "link "+l.Attrs().Name)
		}
	}
	return found, err
}

func tablesOf(name string) ([]string, error) {
	tables, err := tables()
	var found []string
	for _, t := range tables {
		if strings.Contains(t, name) {
			found = append(found, "nftables table "+t)
		}
	}
	return found, err
}

// tables returns the names of the nftables tables of this network namespace.
func tables() ([]string, error) {
	const subsystem = unix.NFNL_SUBSYS_NFTABLES << 8
	req := nl.NewNetlinkRequest(subsystem|unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_UNSPEC})
	answers, err := req.Execute(unix.NETLINK_NETFILTER, subsystem|unix.NFT_MSG_NEWTABLE)
	if err != nil {
		return nil, fmt.Errorf("listing nftables: %w", err)
	}
	var names []string
	for _, a := range answers {
		attrs, err := nl.ParseRouteAttr(a[nl.SizeofNfgenmsg:])
		if err != nil {
			return nil, err
		}
		for _, at := range attrs {
			if at.Attr.Type == unix.NFTA_TABLE_NAME {
				names = append(names, string(bytes.TrimRight(at.Value, "\x00")))
			}
		}
	}
	return names, nil
}

func runOf(name string) ([]string, error) {
	dir := filepath.Join("/run/sampan", name)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return []string{"directory " + dir}, nil
}
