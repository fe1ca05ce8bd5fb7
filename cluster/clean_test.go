package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// script makes a program at path.
func script(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestContainersAreCleanedWithoutTheProgramInTheDataDirectory(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	done := filepath.Join(t.TempDir(), "done")
	args := []string{"clean", done}
	calls := 0
	unpack := func(dir string) (string, error) {
		calls++
		return script(t, filepath.Join(dir, "sampan-runtime"), `echo "$1" >"$2"`), nil
	}
	if err := cleanContainers(t.Context(), filepath.Join(t.TempDir(), "bin", "sampan-runtime"), args, unpack); err != nil || calls != 1 {
		t.Errorf("without the program: %v, after %d calls", err, calls)
	}
	if got, err := os.ReadFile(done); err != nil || string(got) != "clean\n" {
		t.Errorf("the other program has done %q, %v", got, err)
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	for text, want := range map[string]string{
		"exit 3":           "removing the leftovers of the containers: exit status 3",
		"echo bad; exit 3": "removing the leftovers of the containers: exit status 3: bad",
	} {
		err := cleanContainers(t.Context(), script(t, filepath.Join(t.TempDir(), "own"), text), args, unpack)
		if err == nil || err.Error() != want || calls != 1 {
			t.Errorf("%s: %v after %d calls, want %q", text, err, calls, want)
		}
	}
	err := cleanContainers(t.Context(), "/x/sampan-runtime", args, func(string) (string, error) { return "", errors.New("no room") })
	if want := "/x/sampan-runtime does not exist: no room"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error is %v, want one that ends with %q", err, want)
	}
}
