//go:build !portable

package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// detach removes a mount in use from the directory tree.
const detach = unix.MNT_DETACH

// unmountBelow unmounts the mounts below dir with the flags below, and, if itself is set, the mounts at dir with
// the flags top.
func unmountBelow(dir string, itself bool, top, below int) error {
	real, err := filepath.EvalSymlinks(dir) // as the kernel names mounts
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("mounts below %s: %w", dir, err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(real))
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(mounts) {
		if m.Mountpoint == real && !itself {
			continue
		}
		flags := below
		if m.Mountpoint == real && len(errs) == 0 {
			flags = top
		}
		err := unix.Unmount(m.Mountpoint, unix.UMOUNT_NOFOLLOW|flags)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) { // it is unmounted already
			errs = append(errs, fmt.Errorf("unmount %s: %w", m.Mountpoint, err))
		}
	}
	return errors.Join(errs...)
}

// Flags of [New], which restrict what a file system's files can do.
const (
	NoSetuid   = unix.MS_NOSUID
	NoDevices  = unix.MS_NODEV
	NoPrograms = unix.MS_NOEXEC
)

// New mounts a file system that has no device.
func New(fsType, dir string, flags uintptr, options string) error {
	return unix.Mount(fsType, dir, fsType, flags, options)
}

// Bind mounts a file or directory at another path as well.
func Bind(from, to string) error { return unix.Mount(from, to, "", unix.MS_BIND, "") }

// Share makes the mount at dir a shared one (mount_namespaces(7)).
func Share(dir string) error { return unix.Mount("", dir, "", unix.MS_SHARED, "") }

// Detach removes the mount at path from the directory tree; its users keep it. It follows no symbolic link. The error
// is EINVAL if nothing is mounted there.
func Detach(path string) error { return unix.Unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH) }
