package test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// commands are what sessions can say besides the commands of testscript and those
// of the package session.
var commands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"public":    public,
	"occupy":    occupy,
	"smalldisk": smalldisk,
	"fill":      fill,
	"kill9":     kill9,
	"remember":  remember,
	"unchanged": unchanged,
	"nothing":   nothing,
	"expire":    expire,
	"flip":      flip,
	"format":    format,
	"tear":      tear,
	"ask":       ask,
	"different": different,
	"archive":   archive,
	"registry":  registry,
	"webhook":   webhook,
	"dig":       dig,
	"logind":    logind,
}

// public opens the session's directory to every user, and puts sampan into it as
// $PUBLIC/sampan: the program under test may lie where only root gets.
func public(ts *testscript.TestScript, _ bool, _ []string) {
	work := ts.Getenv("WORK")
	ts.Check(os.Chmod(work, 0o755))
	ts.Check(os.Chmod(filepath.Dir(work), 0o755)) // of this run of the tests alone
	dir := filepath.Join(work, "public")
	ts.Check(os.Mkdir(dir, 0o777))
	ts.Check(os.Chmod(dir, 0o777)) // the umask took some
	program, err := os.ReadFile(sampanProgram)
	ts.Check(err)
	ts.Check(os.WriteFile(filepath.Join(dir, "sampan"), program, 0o755))
	ts.Setenv("PUBLIC", dir)
}

// occupy VARIABLE ADDRESS listens on an address until the session is over, and
// puts its port into the variable. That an address is taken already will do.
func occupy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: occupy VARIABLE ADDRESS")
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp4", args[1])
	if errors.Is(err, unix.EADDRINUSE) {
		_, port, err := net.SplitHostPort(args[1])
		ts.Check(err)
		ts.Setenv(args[0], port)
		return
	}
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv(args[0], strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
}

// smalldisk DIR SIZE mounts a file system of that size (such as 16m) on the
// directory, for as long as the session.
func smalldisk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: smalldisk DIR SIZE")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o700))
	ts.Check(unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+args[1]))
	ts.Defer(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// fill FILE writes to a file until its file system has no room.
func fill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: fill FILE")
	}
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	page := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(page)
	}
	_ = f.Close()
	if !errors.Is(err, unix.ENOSPC) {
		ts.Fatalf("filling %s: %v", args[0], err)
	}
}

// processOf returns the process that a running cluster has written down in a file.
func processOf(run, file, field string) (int, error) {
	var notes map[string]any
	data, err := os.ReadFile(filepath.Join(run, file))
	if err == nil {
		err = json.Unmarshal(data, &notes)
	}
	if inner, ok := notes[field].(map[string]any); ok {
		notes = inner
	}
	pid, _ := notes["pid"].(float64)
	return int(pid), err
}

// kill9 sampan|runtime kills a process of the cluster NAME as kill -9 does, and
// waits until it is gone; kill9 container COMMAND that of a container.
func kill9(ts *testscript.TestScript, neg bool, args []string) {
	var pid int
	var err error
	switch {
	case neg:
		ts.Fatalf("unsupported: ! kill9")
	case slices.Equal(args, []string{"sampan"}):
		pid, err = processOf(ts.Getenv("RUN"), "instance.json", "process")
	case slices.Equal(args, []string{"runtime"}):
		pid, err = processOf(ts.Getenv("RUN"), "runtime.json", "")
	case len(args) == 2 && args[0] == "container":
		pid, err = containerOf(ts.Getenv("NAME"), args[1])
	default:
		ts.Fatalf("usage: kill9 sampan|runtime|container COMMAND")
	}
	ts.Check(err)
	ts.Check(killAndWait(pid))
}

// killAndWait ends a process that need not be a child.
func killAndWait(pid int) error {
	if pid <= 1 {
		return fmt.Errorf("there is no process %d to kill", pid)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return fmt.Errorf("killing process %d: %w", pid, err)
	}
	return awaitEnd(fd)
}

// awaitEnd waits for the end of the process behind a pidfd.
func awaitEnd(fd int) error {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// remember DIR [NAME…] takes note of everything in the directory, but for what has
// one of the names; see unchanged.
func remember(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: remember DIR [NAME…]")
	}
	sum, err := digest(ts.MkAbs(args[0]), args[1:])
	ts.Check(err)
	ts.Setenv("REMEMBERED", sum)
}

// unchanged DIR [NAME…] requires everything to be as it was when remember was
// said.
func unchanged(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: unchanged DIR [NAME…]")
	}
	sum, err := digest(ts.MkAbs(args[0]), args[1:])
	ts.Check(err)
	if was := ts.Getenv("REMEMBERED"); was != sum {
		ts.Fatalf("%s was changed; it was\n%s\nand is\n%s", args[0], was, sum)
	}
}

// digest describes a directory: a line for each file.
func digest(dir string, but []string) (string, error) {
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if slices.Contains(but, d.Name()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %s", info.Mode(), rel)
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x", sha256.Sum256(data))
		}
		lines = append(lines, line)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return "nothing", nil
	}
	return strings.Join(lines, "\n"), err
}

// nothing requires that nothing is left of the cluster NAME but its data.
func nothing(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: nothing")
	}
	left, err := leftOf(ts.Getenv("NAME"))
	ts.Check(err)
	if len(left) > 0 {
		ts.Fatalf("this is left of cluster %s:\n%s", ts.Getenv("NAME"), strings.Join(left, "\n"))
	}
}

// dig SERVER udp|tcp TYPE NAME asks a name server and prints its answer, a line for the
// code and one for each record.
func dig(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: dig SERVER udp|tcp TYPE NAME")
	}
	server := args[0]
	if _, _, err := net.SplitHostPort(server); err != nil {
		server = net.JoinHostPort(server, "53")
	}
	m := new(dns.Msg).SetQuestion(args[3], dns.StringToType[args[2]])
	m.SetEdns0(dns.DefaultMsgSize, false)
	c := dns.Client{Net: args[1], Timeout: time.Minute}
	r, _, err := c.Exchange(m, server)
	ts.Check(err)
	out := ts.Stdout()
	_, _ = fmt.Fprintln(out, dns.RcodeToString[r.Rcode])
	for _, rr := range r.Answer {
		_, _ = fmt.Fprintln(out, strings.Join(strings.Fields(rr.String()), " "))
	}
	for _, o := range r.IsEdns0().Option {
		if why, ok := o.(*dns.EDNS0_EDE); ok {
			_, _ = fmt.Fprintln(out, "because "+why.ExtraText)
		}
	}
}
