package session

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// followed is the program that a session follows, under this key.
type followed struct{}

// A follower is a program that goes on printing while the session does other
// things.
type follower struct {
	name   string
	lines  *bufio.Scanner
	stderr *strings.Builder
	end    func()
}

// follow PROGRAM ARG… starts a program that prints news; see seen. It ends with the
// session, or when another one is followed, or after a minute.
func follow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: follow PROGRAM ARG…")
	}
	box := ts.Value(followed{}).(**follower) // put there by the set-up
	if *box != nil {
		(*box).end()
	}
	program, err := lookPath(ts, args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cmd := exec.CommandContext(ctx, program, args[1:]...)
	f := &follower{name: strings.Join(args, " "), stderr: &strings.Builder{}}
	cmd.Dir, cmd.Env, cmd.Stderr = ts.Getenv("WORK"), environ(ts), f.stderr
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	f.lines = bufio.NewScanner(out)
	f.end = func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}
	ts.Check(cmd.Start())
	*box = f
	ts.Defer(func() {
		if *box == f {
			f.end()
		}
	})
}

// seen PATTERN reads what the followed program prints until a line matches. What
// was read becomes the standard output.
func seen(ts *testscript.TestScript, neg bool, args []string) {
	f := *ts.Value(followed{}).(**follower) // put there by the set-up
	if neg || len(args) != 1 || f == nil {
		ts.Fatalf("usage: seen PATTERN, after follow")
	}
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	var read strings.Builder
	for f.lines.Scan() {
		fmt.Fprintln(&read, f.lines.Text())
		if pattern.Match(f.lines.Bytes()) {
			_, err := io.WriteString(ts.Stdout(), read.String())
			ts.Check(err)
			return
		}
	}
	f.end()
	ts.Fatalf("%s ended without a line that matches %q:\n%s%s", f.name, args[0], &read, f.stderr)
}
