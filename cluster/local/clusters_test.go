package local

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestClustersListsStoppedOnesAndFaults(t *testing.T) {
	p := placed(t)
	if all, err := p.Clusters(); len(all) != 0 || err != nil {
		t.Errorf("on a new machine: %v, %v", all, err)
	}
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	called := func(name, dir string) Profile {
		q := p.called(name)
		if dir != "" {
			q.DataDir = dir
		}
		keep(t, q)
		if err := q.Record(); err != nil {
			t.Fatal(err)
		}
		return q
	}
	byDefault, elsewhere := called("plain", ""), called("elsewhere", p.DataDir)
	running := called("running", "")
	if err := running.Save(Instance{Name: "running", Process: self, DataDir: running.DataDir}); err != nil {
		t.Fatal(err)
	}
	two := called("two", "")
	other := called("two", filepath.Join(t.TempDir(), "two"))
	lost := called("unmounted", filepath.Join(t.TempDir(), "lost"))
	if err := os.RemoveAll(lost.DataDir); err != nil {
		t.Fatal(err)
	}
	foreign, broken := p.called("foreign"), p.called("broken")
	if err := os.MkdirAll(filepath.Join(foreign.Default, "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{broken.record(), foreign.instanceFile()} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	all, err := p.Clusters()
	var got []string
	for _, c := range all {
		word := "stopped"
		if c.Running {
			word = "running"
		}
		got = append(got, strings.Join([]string{c.Name, word, c.DataDir}, " "))
	}
	want := []string{
		"running running " + running.DataDir, "elsewhere stopped " + elsewhere.DataDir, "plain stopped " + byDefault.DataDir,
		"two stopped " + other.DataDir, "two stopped " + two.DataDir, "unmounted stopped " + lost.DataDir,
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, part := range []string{broken.record(), "remove that file, and pass the directory with --data-dir", foreign.instanceFile()} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error is %v, want %q in it", err, part)
		}
	}
}
