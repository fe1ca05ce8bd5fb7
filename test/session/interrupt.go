package session

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// interrupt CODE SIGN PROGRAM ARG… runs a program, sends it what Ctrl-C sends when it
// has said SIGN, or at once if that is empty, or if it is a path, when there is such
// a file. It must end with the code.
func interrupt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: interrupt CODE SIGN PROGRAM ARG…")
	}
	sign := args[1]
	path, err := lookPath(ts, args[2])
	ts.Check(err)
	said := &listener{sign: sign, heard: make(chan struct{})}
	cmd := exec.Command(path, args[3:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), environ(ts)
	cmd.Stdout, cmd.Stderr = said, said
	// An input that does not end, as a terminal's.
	in, err := cmd.StdinPipe()
	ts.Check(err)
	defer func() { _ = in.Close() }()
	ts.Check(cmd.Start())
	if filepath.IsAbs(sign) {
		ts.Check(awaitFile(sign))
	} else if sign != "" {
		<-said.heard
	}
	ts.Check(cmd.Process.Signal(os.Interrupt))
	code, err := ExitCode(cmd.Wait())
	ts.Check(err)
	ts.Logf("[output]\n%s", said.all.String())
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("%s exited with code %d, want %s", strings.Join(args[2:], " "), code, args[0])
	}
}

// A listener hears a sign in what a program says. It is written to by one
// goroutine, of os/exec.
type listener struct {
	sign  string
	heard chan struct{} // closed when it was said
	all   bytes.Buffer
	done  bool
}

func (l *listener) Write(p []byte) (int, error) {
	l.all.Write(p)
	if !l.done && bytes.Contains(l.all.Bytes(), []byte(l.sign)) {
		l.done = true
		close(l.heard)
	}
	return len(p), nil
}

// awaitFile waits until there is a file, for a minute at most.
func awaitFile(path string) error {
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for range 60_000 {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		<-pace.C
	}
	return fmt.Errorf("%s was not made within a minute", path)
}

func lookPath(ts *testscript.TestScript, program string) (string, error) {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no program %s", program)
}

// environ is the part of a session's environment that sampan asks for.
func environ(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"HOME", "PATH", "KUBECONFIG", "XDG_RUNTIME_DIR", "XDG_DATA_HOME"} {
		if v := ts.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}
