package run_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/internal/run"
)

func explode() { panic(io.ErrShortWrite) }

func TestCatchTurnsAPanicIntoAnError(t *testing.T) {
	err := run.Catch(func() error { explode(); return nil })
	var fault *run.PanicError
	if !errors.As(err, &fault) || !errors.Is(err, io.ErrShortWrite) || err.Error() != "panic: short write" {
		t.Fatalf("Catch = %v", err)
	}
	if !strings.Contains(string(fault.Stack), "explode") {
		t.Errorf("the stack does not name the function that panicked:\n%s", fault.Stack)
	}
	if err := run.Catch(func() error { return io.EOF }); err != io.EOF { //nolint:errorlint // it is passed on as it is
		t.Errorf("Catch = %v, want EOF", err)
	}
	if err := run.Catch(func() error { return nil }); err != nil {
		t.Errorf("Catch = %v", err)
	}
}

func TestShieldLogsTheStack(t *testing.T) {
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	if run.Shield(log, explode, "key", "a/b") || !run.Shield(log, func() {}) {
		t.Error("Shield reports the wrong thing")
	}
	for _, want := range []string{"key=a/b", `err.panic="short write"`, "err.stack=", "explode"} {
		if strings.Count(out.String(), "panic, going on") != 1 || !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out.String())
		}
	}
}

// TestCatchLetsGoexitPass checks that a goroutine that a test or a plug-in ends stays ended.
func TestCatchLetsGoexitPass(t *testing.T) {
	g := run.NewGroup(t.Context(), 0)
	after := false
	g.Go(func(context.Context) {
		_ = run.Catch(func() error { runtime.Goexit(); return nil })
		after = true
	})
	g.Stop()
	if after {
		t.Error("the goroutine went on after Goexit")
	}
}
