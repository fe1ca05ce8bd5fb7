//go:build !portable

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Ways to find a file below a directory: links do not lead out of it, or lead to where they do with the directory as the root.
const (
	beneath = unix.RESOLVE_BENEATH
	inRoot  = unix.RESOLVE_IN_ROOT
)

// lookUp finds a file below dir. The result is a handle that can neither be read nor written.
func lookUp(dir, path string, resolve uint64) (*os.File, error) {
	top, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(top) }()
	for range lookups {
		fd, err := unix.Openat2(top, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve | unix.RESOLVE_NO_MAGICLINKS})
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &fs.PathError{Op: "openat2", Path: path, Err: err}
		default:
			return os.NewFile(uintptr(fd), path), nil
		}
	}
	return nil, &fs.PathError{Op: "openat2", Path: path, Err: unix.EAGAIN}
}

// lookups limits how often a path is looked up that is being renamed all the time, when
// the kernel does not report whether it has stayed in the volume.
const lookups = 100

// reopen opens a found file for reading.
func reopen(found *os.File) (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", found.Fd()))
}
