package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// An IDMap gives the users and groups 0 to Size-1 of a user namespace those of the host from Host on.
type IDMap struct{ Host, Size uint32 }

// newNamespaces returns the number of a process that is in a new user namespace and in other new ones, which belong to that
// one. The process is stopped before its first instruction. The caller is locked to its thread, and calls end.
func newNamespaces(flags int, m IDMap) (pid int, end func(), err error) {
	ids := []syscall.SysProcIDMap{{HostID: int(m.Host), Size: int(m.Size)}}
	// Traced, the process stops when it executes a program, and which one does not matter.
	pid, err = syscall.ForkExec("/proc/self/exe", []string{"namespaces"}, &syscall.ProcAttr{
		Dir: "/", Files: nil,
		Sys: &syscall.SysProcAttr{
			Ptrace: true, Pdeathsig: syscall.SIGKILL, Cloneflags: uintptr(unix.CLONE_NEWUSER | flags),
			UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
		},
	})
	if err != nil {
		return 0, nil, fmt.Errorf("new user namespace: %w", err)
	}
	return pid, func() {
		_ = unix.Kill(pid, unix.SIGKILL)
		for {
			var status unix.WaitStatus
			_, err := unix.Wait4(pid, &status, unix.WALL, nil)
			if errors.Is(err, unix.EINTR) || err == nil && !status.Exited() && !status.Signaled() {
				continue // the report of its stop comes first
			}
			return
		}
	}, nil
}

// CheckMappedMounts reports why containers with users of their own can't have their files below dir: the kernel or its file
// system does not map the owners of files. It starts a process; see [Supervisor.Spawning].
func CheckMappedMounts(dir string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const anyRange = 65536
	pid, end, err := newNamespaces(0, IDMap{Host: anyRange, Size: anyRange})
	if err != nil {
		return err
	}
	defer end()
	users, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "ns/user"))
	if err != nil {
		return err
	}
	defer users.Close()
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("mount with mapped owners: %w", err)
	}
	defer func() { _ = unix.Close(tree) }()
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return fmt.Errorf("the file system of %s does not map the owners of files: %w", dir, err)
	}
	return nil
}
