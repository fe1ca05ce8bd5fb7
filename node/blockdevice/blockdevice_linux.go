//go:build !portable

package blockdevice

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"

	"github.com/sampan-io/sampan/internal/mounts"
)

// A Mounter mounts devices below one directory. The mounts of a device there share their options: those of the mount that came
// first, as kernels want it. It is safe for concurrent use.
type Mounter struct {
	root string

	mu    sync.Mutex
	turns map[uint64]chan struct{} // guarded by mu; by number of the device: holds a token while the device is not worked on
}

// New returns a mounter for directories below root, a path without links in it.
func New(root string) *Mounter { return &Mounter{root: root, turns: map[uint64]chan struct{}{}} }

// Mount mounts a device, unless something is mounted at the directory. A device without a file system and without partitions is
// formatted first; otherwise fsck repairs what it can. Formatting is not interrupted when ctx is cancelled, because the device
// would be left with a part of a file system. Errors are for users.
func (m *Mounter) Mount(ctx context.Context, r Request) error {
	if r.Type == "" {
		r.Type = DefaultType
	}
	if strings.ContainsRune(r.Type, filepath.Separator) {
		return fmt.Errorf("fsType %q is not the name of a file system", r.Type)
	}
	if !filepath.IsAbs(r.Device) {
		return fmt.Errorf("path %q is not absolute", r.Device)
	}
	number, err := numberOf(r.Device)
	if err != nil {
		return err
	}
	turn := m.turn(number)
	select {
	case <-turn:
	case <-ctx.Done():
		return fmt.Errorf("waiting for another mount of device %s: %w", r.Device, context.Cause(ctx))
	}
	defer func() { turn <- struct{}{} }()
	if err := os.MkdirAll(r.Dir, 0o750); err != nil {
		return err
	}
	mounted, err := mountinfo.Mounted(r.Dir)
	if err != nil || mounted {
		return err
	}
	other, err := m.mountOf(number)
	if err != nil {
		return err
	}
	if other != "" {
		if err := unix.Mount(other, r.Dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind mount of %s: %w", other, err)
		}
		return nil
	}
	return formatAndMount(ctx, r)
}

// numberOf returns the number of a block device.
func numberOf(path string) (uint64, error) {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if s.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, fmt.Errorf("path %q is not a block device", path)
	}
	return s.Rdev, nil
}

func (m *Mounter) turn(number uint64) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	turn := m.turns[number]
	if turn == nil {
		turn = make(chan struct{}, 1)
		turn <- struct{}{}
		m.turns[number] = turn
	}
	return turn
}

// mountOf returns a directory below the root at which a device is mounted; "" if there is none.
func (m *Mounter) mountOf(number uint64) (string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(m.root))
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(mounts, func(i *mountinfo.Info) bool {
		return i.Root == "/" && unix.Mkdev(uint32(i.Major), uint32(i.Minor)) == number // numbers of devices have 32 bits
	})
	if i < 0 {
		return "", nil
	}
	return mounts[i].Mountpoint, nil
}

// A mountProgram is what [mount.SafeFormatAndMount] needs of its interface: it calls no other method.
type mountProgram struct {
	mount.Interface
	ctx context.Context //nolint:containedctx // lives for one call
}

func (p mountProgram) MountSensitive(source, dir, fsType string, options, _ []string) error {
	return mounts.Mount(p.ctx, fsType, options, source, dir)
}

func formatAndMount(ctx context.Context, r Request) error {
	if _, err := exec.LookPath("blkid"); err != nil {
		return errors.New("volumes on block devices need the program blkid on the node: install the package util-linux")
	}
	mounter := mount.NewSafeFormatAndMount(mountProgram{ctx: ctx}, newPrograms())
	err := mounter.FormatAndMount(r.Device, r.Dir, r.Type, r.Options)
	if err == nil {
		return nil
	}
	cause := ""
	if failed, ok := errors.AsType[mount.MountError](err); ok {
		cause = explain(failed.Type, r, mounter.GetDiskFormat)
	}
	return errors.Join(
		fmt.Errorf("local: failed to mount device %s at %s (fstype: %s), error %w%s", r.Device, r.Dir, r.Type, err, cause), // kubelet's words
		os.Remove(r.Dir),
	)
}

// explain returns what a user has to know beside the error of the mount.
func explain(failed mount.MountErrorType, r Request, formatOf func(device string) (string, error)) string {
	switch failed {
	case mount.FormatFailed:
		if _, err := exec.LookPath("mkfs." + r.Type); err != nil {
			return fmt.Sprintf(": the device has no file system, and to format it needs the program mkfs.%s on the node", r.Type)
		}
	case mount.FilesystemMismatch:
		if format, err := formatOf(r.Device); err == nil {
			return fmt.Sprintf(": the device has the file system %q, and the volume's fsType is %q", format, r.Type)
		}
	default:
	}
	return ""
}

// Expand makes the file system of a mounted device as large as the device.
func Expand(r Request) error {
	_, err := mount.NewResizeFs(newPrograms()).Resize(r.Device, r.Dir)
	return err
}
