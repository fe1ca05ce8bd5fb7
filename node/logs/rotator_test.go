package logs_test

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sampan-io/sampan/node/logs"
)

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestRotateKeepsTheNewestFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	limits := logs.Limits{Size: 4, Files: 3}
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	write := func() {
		if err := os.WriteFile(path, []byte("line "+now.Format("05")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		write()
		if done, err := logs.Rotate(path, limits, now, func() error { return os.WriteFile(path, nil, 0o600) }); !done || err != nil {
			t.Fatal(done, err)
		}
		now = now.Add(10 * time.Second)
	}
	if diff := cmp.Diff([]string{"0.log", "0.log.20300102-030425.gz", "0.log.20300102-030435"}, files(t, dir)); diff != "" {
		t.Error(diff)
	}
	f, err := os.Open(filepath.Join(dir, "0.log.20300102-030425.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || string(text) != "line 25" {
		t.Errorf("%q, %v", text, err)
	}
	if done, err := logs.Rotate(path, limits, now, nil); done || err != nil {
		t.Errorf("a small file: %v, %v", done, err)
	}
	if done, err := logs.Rotate(filepath.Join(dir, "none"), limits, now, nil); done || err != nil {
		t.Errorf("no file: %v, %v", done, err)
	}
	// A runtime that cannot open the path again goes on with the old file.
	write()
	if done, err := logs.Rotate(path, limits, now, func() error { return errors.New("down") }); done || err == nil {
		t.Errorf("%v, %v", done, err)
	}
	if text, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(text), "line") {
		t.Errorf("%q, %v", text, err)
	}
}
