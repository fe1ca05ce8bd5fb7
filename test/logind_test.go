package test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
)

// loginOf is the key of a session's stand-in for systemd-logind.
type loginOf struct{}

// login is the connection to it.
type login struct {
	in  io.Writer
	out *bufio.Scanner
}

// logind stands in for systemd-logind: "logind serve SOCKET" serves it until the script ends; other words are its commands, see
// package node/shutdown/logindtest/servetest.
func logind(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: logind serve SOCKET|locked|unlocked|shutdown|cancel|hang")
	}
	box := ts.Value(loginOf{}).(*login) // put there by the set-up
	if args[0] == "serve" && len(args) > 1 {
		program, err := buildProgram(ts.Getenv("WORK"), "..", "./node/shutdown/logindtest/servetest")
		ts.Check(err)
		file := filepath.Join(ts.Getenv("WORK"), "logind")
		ts.Check(os.WriteFile(file, program, 0o700))
		cmd := exec.Command(file, ts.MkAbs(args[1]))
		box.in, err = cmd.StdinPipe()
		ts.Check(err)
		out, err := cmd.StdoutPipe()
		ts.Check(err)
		box.out = bufio.NewScanner(out)
		ts.Check(cmd.Start())
		ts.Defer(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		args[0] = "listening"
	}
	if box.in == nil {
		ts.Fatalf("logind is not served yet")
	}
	_, err := fmt.Fprintln(box.in, args[0])
	ts.Check(err)
	if !box.out.Scan() {
		ts.Fatalf("logind has ended: %v", box.out.Err())
	}
}
