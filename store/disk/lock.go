package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/filelock"
)

// lockDir takes the directory for this process. The lock ends with the returned
// file, at the latest with the process.
func lockDir(dir string) (*os.File, error) {
	name := filepath.Join(dir, "lock")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = filelock.TryLock(f)
	if errors.Is(err, filelock.ErrLocked) {
		owner := "another process"
		if b, err := io.ReadAll(io.LimitReader(f, 32)); err == nil {
			if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
				owner = fmt.Sprintf("process %d", pid)
			}
		}
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("the data directory %s is in use by %s: stop that one, or use another directory", dir, owner)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("locking %s: %w", name, err)
	}
	// The pid is for people; a full disk must not keep the store from starting.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

// syncDir makes names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// full reports whether err says that there is no space.
func full(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
