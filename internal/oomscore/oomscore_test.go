package oomscore

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func newGuard(t *testing.T, score string) *guard {
	t.Helper()
	g := &guard{file: filepath.Join(t.TempDir(), "oom_score_adj")}
	if err := os.WriteFile(g.file, []byte(score), 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *guard) now(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(g.file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestProtectedProcessStartsUnprotectedPrograms(t *testing.T) {
	for _, tt := range []struct{ before, own, child string }{
		{"0\n", "-999", "0"},
		{"200\n", "-999", "200"},
		{"-500\n", "-999", "0"},
		{"-999\n", "-999", "0"},
		{"-1000\n", "-999", "0"},
	} {
		g := newGuard(t, tt.before)
		restore := g.protect(-999)
		if got := g.now(t); got != tt.own {
			t.Errorf("%q: protected with %s, want %s", tt.before, got, tt.own)
		}
		failed := errors.New("failed")
		err := g.spawn(func() error {
			if err := g.spawn(func() error { return nil }); err != nil { // another goroutine
				return err
			}
			if got := g.now(t); got != tt.child {
				t.Errorf("%q: a program gets %s, want %s", tt.before, got, tt.child)
			}
			return failed
		})
		if err != failed {
			t.Errorf("spawn returns %v", err)
		}
		if got := g.now(t); got != tt.own {
			t.Errorf("%q: after the start of a program %s, want %s", tt.before, got, tt.own)
		}
		restore()
		if got := g.now(t); got != strings.TrimSpace(tt.before) {
			t.Errorf("%q: restored to %s", tt.before, got)
		}
	}
}

func TestWithoutTheCapabilityNothingChanges(t *testing.T) {
	g := &guard{file: filepath.Join(t.TempDir(), "missing", "oom_score_adj")}
	g.protect(-999)()
	ran := false
	if err := g.spawn(func() error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("spawn: %v, %v", ran, err)
	}
}

// TestProgramInheritsNoProtection starts a real program. Without CAP_SYS_RESOURCE it only sees that nothing breaks.
func TestProgramInheritsNoProtection(t *testing.T) {
	restore := Protect(-900)
	defer restore()
	cat := command(t)
	out, err := CombinedOutput(cat)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(out)); strings.HasPrefix(got, "-") {
		t.Errorf("a program has the score %s", got)
	}
}

func command(t *testing.T) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), "cat", "/proc/self/oom_score_adj")
}
