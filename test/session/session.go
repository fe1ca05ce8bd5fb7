// Package session is what terminal sessions can say, beside the commands of
// testscript, whatever cluster they are played on.
package session

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// A Command is what testscript calls for a line of a session.
type Command = func(ts *testscript.TestScript, neg bool, args []string)

// Commands returns the commands of this package together with others.
func Commands(others map[string]Command) map[string]Command {
	all := map[string]Command{
		"exits":     exits,
		"await":     await,
		"capture":   capture,
		"same":      same,
		"interrupt": interrupt,
		"follow":    follow,
		"seen":      seen,
	}
	maps.Copy(all, others)
	return all
}

// Prepare sets a session up: its HOME is its own directory, and programs are found
// in dir first.
func Prepare(e *testscript.Env, dir string) {
	e.Setenv("PATH", dir+string(os.PathListSeparator)+e.Getenv("PATH"))
	e.Setenv("HOME", e.WorkDir)
	e.Values[followed{}] = new(*follower)
}

// Link makes a directory of programs: links with these names.
func Link(dir string, programs map[string]string) error {
	for name, program := range programs {
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// ExitCode returns the code with which a program ended, or why there is none.
func ExitCode(err error) (int, error) {
	if exit, ended := errors.AsType[*exec.ExitError](err); ended {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// exits CODE PROGRAM ARG… runs a program, which must end with that code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG…")
	}
	code, err := ExitCode(ts.Exec(args[1], args[2:]...))
	ts.Check(err)
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("%s exited with code %d, want %s", strings.Join(args[1:], " "), code, args[0])
	}
}

// capture VARIABLE PROGRAM ARG… puts what a program prints into a variable.
func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: capture VARIABLE PROGRAM ARG…")
	}
	ts.Check(ts.Exec(args[1], args[2:]...))
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// same ARG… runs kubectl and then sampan with these arguments: they must print the same, with
// the same code. What they printed is left in stdout and stderr.
func same(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: same ARG…")
	}
	want, err := ExitCode(ts.Exec("kubectl", args...))
	ts.Check(err)
	out := ts.ReadFile("stdout")
	code, err := ExitCode(ts.Exec("sampan", args...))
	ts.Check(err)
	if got := ts.ReadFile("stdout"); got != out || code != want {
		ts.Fatalf("%s: kubectl exited with code %d and printed\n%s\nsampan exited with code %d and printed\n%s", strings.Join(args, " "), want, out, code, got)
	}
}

// await PROGRAM ARG… runs a program again and again, for a minute at most, until
// it succeeds. It is for what has no watch: everything in the cluster has one.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: await PROGRAM ARG…")
	}
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for range 600 {
		if ts.Exec(args[0], args[1:]...) == nil {
			return
		}
		<-pace.C
	}
	ts.Fatalf("%s did not succeed within a minute", strings.Join(args, " "))
}
