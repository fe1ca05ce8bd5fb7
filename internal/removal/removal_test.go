package removal_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/removal"
)

// nest makes directories in each other, and returns a descriptor of the innermost one.
func nest(t *testing.T, path string, depth int) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range depth {
		if err != nil {
			t.Fatal(err)
		}
		if err = unix.Mkdirat(fd, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		inner, openErr := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		_ = unix.Close(fd)
		fd, err = inner, openErr
	}
	return fd
}

func TestTreeIsRemoved(t *testing.T) {
	keep := filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(keep, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "top")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 1500 { // more than one batch
		if err := os.WriteFile(filepath.Join(path, "f"+strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(path, "moved-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(keep), filepath.Join(path, "link")); err != nil {
		t.Fatal(err)
	}
	fd := nest(t, path, 3000)
	for _, name := range []string{"a", "b"} {
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Symlinkat(filepath.Dir(keep), fd, "link"); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	// Fewer descriptors than levels.
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	err := removal.Tree(path)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the directory is there: %v", err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("a file outside was removed: %v", err)
	}
	for _, path := range []string{path, keep} { // nothing, and a file
		if err := removal.Tree(path); err != nil {
			t.Error(err)
		}
	}
}
