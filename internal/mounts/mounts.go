// Package mounts mounts file systems by mount(8), and unmounts everything below a directory, so that its removal does not delete
// mounted files.
package mounts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/oomscore"
)

// UnmountBelow unmounts everything that is mounted at dir or below it, the newest first. A directory that does not exist
// has no mounts. It returns an error for each mount that is in use.
func UnmountBelow(dir string) error { return unmountBelow(dir, 0, 0) }

// DetachBelow is UnmountBelow, except that a mount in use is only removed from the directory tree: its users keep it.
func DetachBelow(dir string) error { return unmountBelow(dir, unix.MNT_DETACH, unix.MNT_DETACH) }

// DetachTop is UnmountBelow, except that a mount at dir itself that is in use is only removed from the directory tree. It stays if there is an
// error for a mount below it.
func DetachTop(dir string) error { return unmountBelow(dir, unix.MNT_DETACH, 0) }

func unmountBelow(dir string, top, below int) error {
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

// Mount calls mount(8). No argument may begin with a dash. Errors are in kubelet's words.
func Mount(ctx context.Context, fsType string, options []string, source, dir string) error {
	args := []string{"-t", fsType}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	args = append(args, source, dir)
	out, err := oomscore.CombinedOutput(exec.CommandContext(ctx, "mount", args...)) // no shell
	if err != nil {
		return fmt.Errorf("mount failed: %w\nMounting command: mount\nMounting arguments: %s\nOutput: %s", err, strings.Join(args, " "), out)
	}
	return nil
}
