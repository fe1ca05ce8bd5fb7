package mounts_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/internal/nstest"
)

// A removal after UnmountBelow leaves what was mounted in the directory alone.
func TestUnmountBelowKeepsMountedFiles(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		outside, dir := t.TempDir(), t.TempDir()
		kept := filepath.Join(outside, "kept")
		if err := os.WriteFile(kept, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		inside := filepath.Join(dir, "a", "b")
		if err := os.MkdirAll(inside, 0o700); err != nil {
			t.Fatal(err)
		}
		for range 2 { // one mount over another
			if err := unix.Mount(outside, inside, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := mounts.UnmountBelow(link); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("a file of the mounted directory is gone: %v", err)
		}
	})
}

func TestMountsInUse(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		user, err := os.Create(filepath.Join(dir, "file"))
		if err != nil {
			t.Fatal(err)
		}
		defer user.Close()
		if err := mounts.UnmountBelow(dir); !errors.Is(err, unix.EBUSY) {
			t.Errorf("UnmountBelow: %v, want EBUSY", err)
		}
		if err := mounts.DetachBelow(dir); err != nil {
			t.Errorf("DetachBelow: %v", err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("the directory has %v, %v after DetachBelow", left, err)
		}
	})
}

func TestUnmountBelowIgnoresMissingDirectory(t *testing.T) {
	if err := mounts.UnmountBelow(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Error(err)
	}
}
