package filewatch_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/sampan-io/sampan/internal/filewatch"
	"github.com/sampan-io/sampan/internal/run"
)

// TestFollow changes a file in the ways of editors, programs and kubelets, and another file, which does not count.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config")
	contents := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) {
		ended <- filewatch.Follow(ctx, []string{filepath.Join(dir, "config")}, func() {
			data, _ := os.ReadFile(path)
			contents <- string(data)
		})
	})
	if first := <-contents; first != "" {
		t.Errorf("at first %q", first)
	}
	until := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-contents:
				if got == want {
					return
				}
			case <-t.Context().Done():
				t.Fatalf("no call with %q", want)
			}
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(path, []byte("written"), 0o600))
	until("written")
	must(os.WriteFile(path+".new", []byte("renamed"), 0o600))
	must(os.Rename(path+".new", path))
	until("renamed")
	must(os.Remove(path))
	until("")
	must(os.Mkdir(filepath.Join(dir, "..1"), 0o700))
	must(os.WriteFile(filepath.Join(dir, "..1", "config"), []byte("mounted"), 0o600))
	must(os.Symlink("..1", filepath.Join(dir, "..data")))
	must(os.Symlink("..data/config", path))
	until("mounted")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := filewatch.Follow(t.Context(), []string{filepath.Join(dir, "missing", "config")}, func() {}); err == nil {
		t.Error("a directory that does not exist is followed")
	}
}

func TestFollowEndsWithAContextThatIsOver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := filewatch.Follow(ctx, []string{filepath.Join(t.TempDir(), "config")}, func() {}); err != nil {
		t.Error(err)
	}
}
