//go:build unix

package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Lock waits until no other process holds a lock on f, and takes it.
func Lock(f *os.File) error { return flock(f, unix.LOCK_EX) }

// Share waits until no other process holds a lock of [Lock] on f, and takes one that others may hold at the same time.
func Share(f *os.File) error { return flock(f, unix.LOCK_SH) }

// TryLock is [Lock], except that it returns [ErrLocked] instead of waiting.
func TryLock(f *os.File) error { return flock(f, unix.LOCK_EX|unix.LOCK_NB) }

// TryShare is [Share], except that it returns [ErrLocked] instead of waiting.
func TryShare(f *os.File) error { return flock(f, unix.LOCK_SH|unix.LOCK_NB) }

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		}
		return err
	}
}
