package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/volume"
)

// memorySize returns how large, in bytes, an empty directory in memory may become: its own limit, that of the memory of all
// containers together, or what the node has, whichever is least.
func (f *Files) memorySize(pod *corev1.Pod, e *corev1.EmptyDirVolumeSource) int64 {
	size := f.node.Memory()
	if limit := crispec.PodResources(pod, lifecycle.ClassOf(pod)).GetMemoryLimitInBytes(); limit > 0 {
		size = min(size, limit)
	}
	if e.SizeLimit != nil && e.SizeLimit.Sign() > 0 {
		size = min(size, e.SizeLimit.Value())
	}
	return size
}

// medium returns the file system of an empty directory and the options of its mount; "" means a directory on disk.
func (f *Files) medium(pod *corev1.Pod, e *corev1.EmptyDirVolumeSource) (fileSystem, options string, err error) {
	switch {
	case e.Medium == corev1.StorageMediumDefault:
		return "", "", nil
	case e.Medium == corev1.StorageMediumMemory:
		return "tmpfs", "size=" + strconv.FormatInt(f.memorySize(pod, e), 10), nil
	case e.Medium == corev1.StorageMediumHugePages, strings.HasPrefix(string(e.Medium), string(corev1.StorageMediumHugePagesPrefix)):
		size, err := volume.PageSize(pod, e.Medium)
		return "hugetlbfs", "pagesize=" + strconv.FormatInt(size, 10), err
	}
	return "", "", fmt.Errorf("unknown storage medium %q", e.Medium)
}

// mountMedium mounts the file system of an empty directory.
func mountMedium(fileSystem, dir, options string) error {
	const flags = mounts.NoSetuid | mounts.NoDevices
	if fileSystem == "tmpfs" {
		return mountMemory(dir, flags, options)
	}
	return mounts.New(fileSystem, dir, flags, options)
}

// emptyDir makes an empty directory, once.
func (f *Files) emptyDir(ctx context.Context, pod *corev1.Pod, dir string, e *corev1.EmptyDirVolumeSource, gid int) error {
	if f.root == "" {
		return nil
	}
	fileSystem, options, err := f.medium(pod, e)
	if err != nil {
		return err
	}
	_, err = os.Stat(dir)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err != nil && !fresh {
		return err
	}
	if fresh {
		if err := os.MkdirAll(dir, 0o755); err != nil { // see the next step
			return err
		}
		if err := os.Chmod(dir, 0o777); err != nil { // containers run as any user
			return err
		}
	}
	if fileSystem != "" {
		// The directory may be there and the file system not: the machine was
		// restarted, or the agent ended right here.
		mounted, err := mountinfo.Mounted(dir)
		if err != nil {
			return err
		}
		if !mounted {
			fresh = true
			mode := "mode=0777,"
			if fileSystem == "tmpfs" {
				mode = "mode=1777," // that of the kernel, which kubelet keeps
			}
			if err := mountMedium(fileSystem, dir, mode+options); err != nil {
				return fmt.Errorf("%s at %s: %w", fileSystem, dir, err)
			}
		}
	}
	if gid >= 0 && fresh {
		return volume.Own(ctx, dir, gid)
	}
	return nil
}

// mountMemory mounts a tmpfs whose content is not written to swap, if the kernel can do that (Linux 6.4, and outside user namespaces).
func mountMemory(dir string, flags uintptr, options string) error {
	err := mounts.New("tmpfs", dir, flags, options+",noswap")
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
		return mounts.New("tmpfs", dir, flags, options)
	}
	return err
}
