//go:build !portable

package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// fdatasync makes the contents of f durable, and of the metadata what is needed
// to read them.
func fdatasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// allocate gives a file the space up to an offset. The error is errors.ErrUnsupported if the
// file system cannot do that.
func allocate(f *os.File, from, to int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, from, to-from)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return errors.ErrUnsupported
		}
		return os.NewSyscallError("fallocate", err)
	}
}
