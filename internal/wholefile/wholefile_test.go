package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

var errCut = errors.New("the power is cut")

// A disk is a folder on a file system that loses what was not synced: after a power cut, each file whose contents were not synced
// is empty, and a rename may or may not have happened.
type disk struct {
	t      *testing.T
	root   *os.Root
	steps  []string
	synced bool // the new contents
}

func newDisk(t *testing.T, old string) *disk {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return &disk{t: t, root: root}
}

// replace writes new contents until the power is cut before the step with that number, and returns the contents afterwards. lost
// says that a rename that was not synced is lost.
func (d *disk) replace(keep Keep, cut int, contents string) (after string, whole bool) {
	d.t.Helper()
	done := ""
	err := write(d.root, "file", "", []byte(contents), 0o600, keep, func(step string) error {
		if done == "sync" {
			d.synced = true
		}
		if len(d.steps) == cut {
			return errCut
		}
		done = step
		d.steps = append(d.steps, step)
		return nil
	})
	if err != nil && !errors.Is(err, errCut) {
		d.t.Fatal(err)
	}
	got, err := d.root.ReadFile("file")
	if err != nil {
		d.t.Fatal(err)
	}
	if string(got) == contents && !d.synced {
		return "", false
	}
	return string(got), true
}

func TestDurableFilesAreWholeAfterAPowerCut(t *testing.T) {
	want := []string{"create", "write", "sync", "rename", "sync folder"}
	for cut := range len(want) + 1 {
		d := newDisk(t, "old")
		got, _ := d.replace(Durable, cut, "new")
		if cut < 4 && got != "old" || cut >= 4 && got != "new" {
			t.Errorf("cut before step %d, after %q: the file says %q", cut, d.steps, got)
		}
		if !slices.Equal(d.steps, want[:cut]) {
			t.Errorf("steps are %q, want %q", d.steps, want[:cut])
		}
	}
}

func TestFilesUntilBootAreNotSynced(t *testing.T) {
	d := newDisk(t, "old")
	if _, whole := d.replace(UntilBoot, 9, "new"); whole || slices.Contains(d.steps, "sync") {
		t.Errorf("steps are %q, want no sync", d.steps)
	}
}

func TestWriteLeavesNothingBehindIfItFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "file", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	err := Write(filepath.Join(dir, "file"), []byte("x"), 0o600, Durable)
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "file")) {
		t.Errorf("error is %v, want one that names the file", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the folder has %v", entries)
	}
	if err := Write(filepath.Join(dir, "absent", "file"), nil, 0o600, Durable); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
}

func TestDiscardKeepsTheOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := Write(path, []byte("old"), 0o640, UntilBoot); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path, 0o600, Durable)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	f.Discard()
	f.Discard()
	got, _ := os.ReadFile(path)
	info, err := os.Stat(path)
	if err != nil || string(got) != "old" || info.Mode().Perm() != 0o640 {
		t.Errorf("the file is %q, %v, %v", got, info, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("the folder has %v", entries)
	}
}

func TestWritersOfOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	var all sync.WaitGroup
	for _, text := range []string{"aaaa", "bbbb", "cccc"} {
		all.Go(func() {
			for range 50 {
				if err := Write(path, []byte(text), 0o600, UntilBoot); err != nil {
					t.Error(err)
				}
				if got, err := os.ReadFile(path); err != nil || len(got) != 4 || strings.Trim(string(got), string(got[:1])) != "" {
					t.Errorf("a reader sees %q, %v", got, err)
				}
			}
		})
	}
	all.Wait()
}

func TestWriteInDoesNotFollowLinks(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "target"), filepath.Join(dir, "file")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := WriteIn(root, "out/file", "", nil, 0o600, Durable); err == nil {
		t.Error("a link leads out of the root")
	}
	if err := WriteIn(root, "file", "", []byte("x"), 0o600, Durable); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 0 {
		t.Errorf("outside there are %v", entries)
	}
	if info, err := os.Lstat(filepath.Join(dir, "file")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the file is %v, %v", info, err)
	}
}
