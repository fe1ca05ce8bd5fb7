package volume_test

import (
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/node/volume"
)

// content returns what a reader finds in a volume, by path.
func content(t interface{ Fatal(args ...any) }, dir string) map[string]string {
	found := map[string]string{}
	var walk func(rel string)
	walk = func(rel string) {
		entries, err := os.ReadDir(filepath.Join(dir, rel))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if rel == "" && strings.HasPrefix(e.Name(), "..") {
				continue
			}
			path := filepath.Join(rel, e.Name())
			info, err := os.Stat(filepath.Join(dir, path)) // follows links
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() {
				walk(path)
				continue
			}
			b, err := os.ReadFile(filepath.Join(dir, path))
			if err != nil {
				t.Fatal(err)
			}
			found[path] = string(b)
		}
	}
	walk("")
	return found
}

func payload(files map[string]string) volume.Payload {
	p := volume.Payload{}
	for path, data := range files {
		p[path] = volume.File{Data: []byte(data), Mode: 0o644}
	}
	return p
}

func TestWriteBringsAnyVolumeToAnyPayload(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "v")
		if err != nil {
			t.Fatal(err)
		}
		payloads := rapid.SliceOfN(rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c/d", "c/e", "f/g/h", ".hidden"}), rapid.StringMatching("[xyz]{0,3}"), 0, 5), 1, 5).Draw(t, "payloads")
		var before map[string]string
		for i, files := range payloads {
			changed, err := volume.Write(dir, payload(files), -1)
			if err != nil {
				t.Fatal(err)
			}
			if want := i == 0 || !maps.Equal(files, before); changed != want {
				t.Errorf("Write says changed=%t from %v to %v", changed, before, files)
			}
			if got := content(t, dir); !maps.Equal(got, files) {
				t.Errorf("volume has %v, want %v", got, files)
			}
			before = files
		}
		// Nothing is left of earlier payloads.
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		hidden := 0
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "..") {
				hidden++
			}
		}
		if hidden != 2 { // the directory of the data and the link to it
			t.Errorf("volume has %v", entries)
		}
	})
}

func TestAnOpenDirectoryKeepsTheOldState(t *testing.T) {
	dir := t.TempDir()
	if _, err := volume.Write(dir, payload(map[string]string{"a": "1", "b": "1"}), -1); err != nil {
		t.Fatal(err)
	}
	target, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := volume.Write(dir, payload(map[string]string{"a": "2", "b": "2"}), -1); err != nil {
		t.Fatal(err)
	}
	// V1: the new state is in another directory, the old one was not written to.
	if now, err := os.Readlink(filepath.Join(dir, "..data")); err != nil || now == target {
		t.Errorf("..data leads to %s before and after, %v", now, err)
	}
}

func TestNoPathLeavesTheVolume(t *testing.T) {
	for _, path := range []string{"../x", "/etc/x", "a/../../x", "..data/x", "..", ""} {
		if _, err := volume.Write(t.TempDir(), payload(map[string]string{path: "x"}), -1); err == nil {
			t.Errorf("path %q was written", path)
		}
	}
}

func TestSubpathFollowsNoLinkOut(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	for link, target := range map[string]string{"out": outside, "up": "../..", "in": "real"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, ok := range map[string]bool{"out": false, "out/x": false, "up": false, "in": true, "real": true, "new/deep": true} {
		f, err := volume.Subpath(dir, path)
		if (err == nil) != ok {
			t.Errorf("Subpath(%q) = %v, want ok=%t", path, err, ok)
		}
		if err == nil {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := volume.Find(dir, "missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a part that does not exist is %v", err)
	}
}

// A container may leave anything where another will have a subPath.
func TestSubpathOpensNothing(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := volume.Subpath(dir, "fifo") // opened for reading, it would wait for a writer
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, unix.EBADF) {
		t.Errorf("reading from what stands for the FIFO: %v, want %v", err, unix.EBADF)
	}
	if info, err := f.Stat(); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("what was found is %v, %v, want a FIFO", info, err)
	}
}

func TestRefresh(t *testing.T) {
	token := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".x"
	}
	tests := []struct {
		name, token string
		want        time.Time
	}{
		{"an hour", token(`{"iat":1000,"exp":4600}`), time.Unix(1000+2880, 0)},
		{"a year is replaced every day", token(`{"iat":1000,"exp":31537000}`), time.Unix(1000+86400, 0)},
		{"no claims", token(`{}`), time.Time{}},
		{"no token", "hello", time.Time{}},
		{"no base64", "a.!.c", time.Time{}},
	}
	for _, tt := range tests {
		if got := volume.Refresh(tt.token); !got.Equal(tt.want) {
			t.Errorf("%s: Refresh = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestAdd(t *testing.T) {
	d := volume.Data{"k": []byte("v"), "l": []byte("w")}
	p := volume.Payload{}
	if err := p.Add("configmap", d, nil, 0o644, false); err != nil || len(p) != 2 {
		t.Errorf("all keys: %v %v", slices.Collect(maps.Keys(p)), err)
	}
	if err := (volume.Payload{}).Add("configmap", d, item("x"), 0, false); err == nil || err.Error() != "configmap references non-existent key: x" {
		t.Errorf("a key that is not there: %v", err)
	}
	if err := (volume.Payload{}).Add("configmap", d, item("x"), 0, true); err != nil {
		t.Errorf("a key that may lack: %v", err)
	}
}

func item(key string) []corev1.KeyToPath { return []corev1.KeyToPath{{Key: key, Path: key}} }

func TestWriteGivesTheVolumeToItsGroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	const gid = 2000
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := volume.Write(dir, volume.Payload{"a": {Data: []byte("1"), Mode: 0o400}, "d/b": {Data: []byte("2"), Mode: 0o600}}, gid); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{
		".": fs.ModeDir | fs.ModeSetgid | 0o755, "..data/.": fs.ModeDir | fs.ModeSetgid | 0o755, "d/.": fs.ModeDir | fs.ModeSetgid | 0o755,
		"a": 0o440, "d/b": 0o640,
	} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if s := info.Sys().(*syscall.Stat_t); info.Mode() != want || s.Gid != gid {
			t.Errorf("%s has mode %v and group %d, want %v and %d", path, info.Mode(), s.Gid, want, gid)
		}
	}
}

// TestOwnDoesNotLeaveTheVolume has a link in the volume, as a container may make it, to what is not in the volume.
func TestOwnDoesNotLeaveTheVolume(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	dir, outside := t.TempDir(), t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"file": secret, "dir": outside} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := volume.Own(t.Context(), dir, 2000); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(secret)
	if err != nil {
		t.Fatal(err)
	}
	if s := info.Sys().(*syscall.Stat_t); info.Mode() != 0o600 || s.Gid == 2000 {
		t.Errorf("a file outside of the volume has mode %v and group %d now", info.Mode(), s.Gid)
	}
}

// TestCreatedSubpathHasTheModeOfTheVolume creates directories of a volume that every user may write.
func TestCreatedSubpathHasTheModeOfTheVolume(t *testing.T) {
	dir := t.TempDir()
	const want = fs.ModeDir | fs.ModeSetgid | 0o777
	if err := errors.Join(os.Chmod(dir, want), os.Mkdir(filepath.Join(dir, "a"), 0o700)); err != nil {
		t.Fatal(err)
	}
	f, err := volume.Subpath(dir, "a/b/c")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{"a": fs.ModeDir | fs.ModeSetgid | 0o700, "a/b": want, "a/b/c": want} {
		if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}

// TestOwnGivesTheRootLast has a tree whose change is cut off: the root, which OnRootMismatch looks at, is not changed yet.
func TestOwnGivesTheRootLast(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	dir := t.TempDir()
	for _, sub := range []string{"a/b", "c"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	steps := 3 // of 4
	ctx := &countdown{Context: t.Context(), steps: &steps}
	if err := volume.Own(ctx, dir, 2000); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled change returned %v", err)
	}
	if volume.Owned(dir, 2000) {
		t.Error("the volume counts as changed")
	}
	if err := volume.Own(t.Context(), dir, 2000); err != nil || !volume.Owned(dir, 2000) {
		t.Errorf("the second try: %v", err)
	}
}

// A countdown is cancelled after so many looks.
type countdown struct {
	context.Context
	steps *int
}

func (c *countdown) Err() error {
	if *c.steps--; *c.steps < 0 {
		return context.Canceled
	}
	return nil
}

func (c *countdown) Value(any) any { return nil }

// TestOwnIgnoresFilesThatVanish has files removed while they are given away.
func TestOwnIgnoresFilesThatVanish(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	dir := t.TempDir()
	for i := range 50 {
		sub := filepath.Join(dir, strconv.Itoa(i), "sub")
		if err := errors.Join(os.MkdirAll(sub, 0o700), os.WriteFile(filepath.Join(sub, "f"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	ctx := &vanishing{Context: t.Context(), dir: dir}
	if err := volume.Own(ctx, dir, 2000); err != nil {
		t.Errorf("files were removed meanwhile: %v", err)
	}
	if !volume.Owned(dir, 2000) {
		t.Error("the volume has not been given away")
	}
}

// A vanishing context removes a directory at each look.
type vanishing struct {
	context.Context
	dir string
	n   int
}

func (v *vanishing) Err() error {
	_ = os.RemoveAll(filepath.Join(v.dir, strconv.Itoa(v.n)))
	v.n++
	return nil
}

// TestReadStaysInTheVolume has what a container may leave in a volume for the agent to read.
func TestReadStaysInTheVolume(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "etc"), 0o755), os.WriteFile(filepath.Join(dir, "etc/passwd"), []byte("own"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"absolute": "/etc/passwd", "up": "../../../../etc/passwd", "in": "etc/passwd", "out": "/etc/hostname", "magic": "/proc/self/exe"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, ok := range map[string]bool{"absolute": true, "up": true, "in": true, "etc/passwd": true, "out": false, "magic": false, "fifo": false, "etc": false, "none": false} {
		f, err := volume.Read(dir, path)
		if (err == nil) != ok {
			t.Errorf("Read(%q) = %v, want ok=%t", path, err, ok)
		}
		if err != nil {
			continue
		}
		b := make([]byte, 9)
		if n, err := f.Read(b); err != nil || string(b[:n]) != "own" {
			t.Errorf("Read(%q) has %q, %v", path, b[:n], err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
