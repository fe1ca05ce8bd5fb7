package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// startedIn makes a data directory as after a start, with a certificate authority.
func startedIn(t *testing.T, root, name, authority string) Profile {
	t.Helper()
	p := Profile{Name: name, DataDir: filepath.Join(root, "data", name), RunDir: filepath.Join(root, "run", name), Default: filepath.Join(root, "data", name)}
	if err := errors.Join(os.MkdirAll(filepath.Join(p.DataDir, "pki"), 0o700),
		os.WriteFile(filepath.Join(p.DataDir, "pki", "ca.crt"), []byte(authority), 0o600),
		os.WriteFile(p.settingsFile(), []byte("{}"), 0o600), p.KeepOrigin()); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCheckCopy(t *testing.T) {
	root := t.TempDir()
	p := startedIn(t, root, "a", "authority of a")
	startedIn(t, root, "other", "authority of other")
	if err := p.CheckCopy(); err != nil {
		t.Fatalf("the original: %v", err)
	}
	is := func(what string, p Profile, original string) {
		t.Helper()
		err := p.CheckCopy()
		c, ok := errors.AsType[*CopyError](err)
		switch {
		case original == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case original != "" && (!ok || c.Original != original || !strings.Contains(err.Error(), "--accept-copy")):
			t.Errorf("%s: %v, want a copy of %s", what, err, original)
		}
	}
	elsewhere := p
	elsewhere.DataDir = filepath.Join(root, "elsewhere")
	if err := os.CopyFS(elsewhere.DataDir, os.DirFS(p.DataDir)); err != nil {
		t.Fatal(err)
	}
	is("a copy beside the original", elsewhere, p.DataDir)
	named := p.called("b")
	if err := os.CopyFS(named.DataDir, os.DirFS(p.DataDir)); err != nil {
		t.Fatal(err)
	}
	is("a copy under another name", named, p.DataDir)
	is("the original of it", p, "")
	if err := os.Remove(p.originFile()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(named.originFile()); err != nil {
		t.Fatal(err)
	}
	is("a copy of a cluster that was never started", named, "")
	if err := errors.Join(p.KeepOrigin(), os.CopyFS(named.DataDir+".x", os.DirFS(p.DataDir)), os.RemoveAll(named.DataDir), os.Rename(named.DataDir+".x", named.DataDir)); err != nil {
		t.Fatal(err)
	}
	if err := named.KeepOrigin(); err != nil {
		t.Fatal(err)
	}
	is("a copy that was accepted", named, "")
	if err := os.Remove(named.originFile()); err != nil {
		t.Fatal(err)
	}
	is("a copy of an older version's data", named, p.DataDir)
	if err := os.RemoveAll(named.DataDir); err != nil {
		t.Fatal(err)
	}

	link := p
	link.DataDir = filepath.Join(root, "link")
	if err := os.Symlink(p.DataDir, link.DataDir); err != nil {
		t.Fatal(err)
	}
	is("a link to the original", link, "")
	moved := p
	moved.DataDir = filepath.Join(root, "moved")
	if err := os.Rename(p.DataDir, moved.DataDir); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(elsewhere.DataDir); err != nil {
		t.Fatal(err)
	}
	is("moved", moved, "")
	if err := moved.KeepOrigin(); err != nil {
		t.Fatal(err)
	}
	is("started there", moved, "")
	is("a new directory", p.called("new"), "")
}

func TestCheckCopyOnAnotherMachine(t *testing.T) {
	p := startedIn(t, t.TempDir(), "a", "authority")
	if err := replace(p.originFile(), []byte(`{"machine":"0123","dataDir":"/srv/a"}`)); err != nil {
		t.Fatal(err)
	}
	err := p.CheckCopy()
	if p.here().Machine == "" {
		if err != nil {
			t.Errorf("a machine without an ID: %v", err)
		}
		return
	}
	if c, ok := errors.AsType[*CopyError](err); !ok || c.Last != "/srv/a" {
		t.Errorf("%v, want a CopyError", err)
	}
	if err := p.KeepOrigin(); err != nil {
		t.Fatal(err)
	}
	if err := p.CheckCopy(); err != nil {
		t.Errorf("after a start: %v", err)
	}
}

func TestMachineIsNotItsID(t *testing.T) {
	file := filepath.Join(t.TempDir(), "machine-id")
	for text, known := range map[string]bool{"": false, "uninitialized\n": false, "0123456789abcdef0123456789abcdef\n": true} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := machineOf(file)
		if (got != "") != known || strings.Contains(got, "0123456789abcdef") {
			t.Errorf("%q: %q", text, got)
		}
	}
}
