package filelock_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sampan-io/sampan/internal/filelock"
)

// TestLocksExclude opens a file several times: for flock(2) that is as good as several processes.
func TestLocksExclude(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	first, second, third := open(), open(), open()
	if err := filelock.Share(first); err != nil {
		t.Fatal(err)
	}
	if err := filelock.TryShare(second); err != nil {
		t.Errorf("a second shared lock: %v", err)
	}
	if err := filelock.TryLock(third); !errors.Is(err, filelock.ErrLocked) {
		t.Errorf("an exclusive lock beside shared ones: %v, want ErrLocked", err)
	}
	_ = second.Close()
	if err := filelock.Lock(first); err != nil { // closing second has released its lock
		t.Fatal(err)
	}
	if err := filelock.TryShare(third); !errors.Is(err, filelock.ErrLocked) {
		t.Errorf("a shared lock beside an exclusive one: %v, want ErrLocked", err)
	}
	_ = first.Close()
	if err := filelock.TryLock(third); err != nil {
		t.Errorf("after the file was closed: %v", err)
	}
}
