//go:build !portable

package local

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/nstest"
)

// TestRemoveEmptiesAMountPoint removes a cluster whose data directory is a mount point, with a mount in it.
func TestRemoveEmptiesAMountPoint(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		dir, outside := t.TempDir(), t.TempDir()
		p := Profile{Name: "test", DataDir: filepath.Join(dir, "data"), RunDir: filepath.Join(dir, "run")}
		inside, kept := filepath.Join(p.DataDir, "pods", "volume"), filepath.Join(outside, "kept")
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(os.Mkdir(p.DataDir, 0o700))
		must(unix.Mount("tmpfs", p.DataDir, "tmpfs", 0, ""))
		defer func() { _ = unix.Unmount(p.DataDir, unix.MNT_DETACH) }()
		must(os.WriteFile(p.settingsFile(), []byte("{}"), 0o600))
		must(os.MkdirAll(inside, 0o700))
		must(os.WriteFile(kept, nil, 0o600))
		must(unix.Mount(outside, inside, "", unix.MS_BIND, ""))
		user, err := os.Open(p.DataDir) // a shell in the directory must not matter
		must(err)
		defer user.Close()
		if had, err := p.Remove(t.Context()); !had || err != nil {
			t.Errorf("removed %v, %v", had, err)
		}
		if entries, err := os.ReadDir(p.DataDir); err != nil || len(entries) > 0 {
			t.Errorf("the directory has %v, %v", entries, err)
		}
		var fs unix.Statfs_t
		if err := unix.Statfs(p.DataDir, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
			t.Errorf("the file system of the user is no longer mounted: %v", err)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("a file of the directory mounted inside: %v", err)
		}
	})
}
