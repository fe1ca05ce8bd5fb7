package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/cli"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

// A screen is a terminal of 60 columns and 10 lines whose output is recorded.
type screen struct {
	master, slave *os.File

	mu  sync.Mutex
	out strings.Builder // guarded by mu
	on  func(all string)
	end chan struct{}
}

func newScreen(t *testing.T, on func(all string)) *screen {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("no pseudo terminals here: %v", err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("no pseudo terminals here: %v", err)
	}
	s := &screen{master: master, slave: slave, on: on, end: make(chan struct{})}
	s.resize(t, 60, 10)
	go s.read()
	return s
}

func (s *screen) resize(t *testing.T, columns, lines uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(s.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: lines}); err != nil {
		t.Error(err)
	}
}

func (s *screen) read() {
	defer close(s.end)
	buf := make([]byte, 4096)
	for {
		n, err := s.master.Read(buf)
		if n > 0 {
			s.mu.Lock()
			s.out.Write(buf[:n])
			all := s.out.String()
			s.mu.Unlock()
			if s.on != nil {
				s.on(all)
			}
		}
		if err != nil {
			return
		}
	}
}

// close returns all that was written.
func (s *screen) close() string {
	_ = s.slave.Close()
	<-s.end
	_ = s.master.Close()
	return s.out.String()
}

// onScreen runs a command line whose streams are a terminal.
func (c *terminal) onScreen(ctx context.Context, on func(s *screen, all string), args ...string) (code int, out string) {
	c.t.Helper()
	var s *screen
	ready := make(chan struct{})
	s = newScreen(c.t, func(all string) {
		<-ready
		on(s, all)
	})
	close(ready)
	code = cli.Main(ctx, append([]string{"--kubeconfig", c.kubeconfig}, args...), cli.Options{
		Version: "v0", In: strings.NewReader(""), Out: s.slave, Err: s.slave,
	})
	return code, s.close()
}

func TestATerminalShowsATreeAndIsLeftAsItWas(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	t.Setenv("LC_ALL", "C")
	w, url := serve(t, pod("a", nil), pod("b", isReady))
	c := newTerminal(t, url)
	var small, done sync.Once
	code, out := c.onScreen(t.Context(), func(s *screen, all string) {
		if strings.Contains(all, "* pod/a: starting on node n1") {
			small.Do(func() { s.resize(t, 30, 3) })
			done.Do(func() { w.Set(t, pod("a", isReady)) })
		}
	}, "wait", "pods", "--all", "--for=ready")
	if code != 0 {
		t.Fatalf("exit code %d:\n%q", code, out)
	}
	for _, want := range []string{"Waiting for 2 objects to be ready: 1 done", "+ pod/b is ready", "* pod/a: starting on node n1"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %q", want, out)
		}
	}
	if strings.Count(out, "\x1b[?25l") == 0 || strings.LastIndex(out, "\x1b[?25l") > strings.LastIndex(out, "\x1b[?25h") {
		t.Errorf("the cursor is not shown again: %q", out)
	}
	if regexp.MustCompile(`\x1b\[[0-9;]*m`).MatchString(out) {
		t.Errorf("it has colours: %q", out)
	}
	// What stays comes after the picture was erased.
	last := out[strings.LastIndex(out, "\x1b[J"):]
	if !strings.Contains(last, "pod/a is ready\r\npod/b is ready\r\n") && !strings.Contains(last, "pod/b is ready\r\npod/a is ready\r\n") {
		t.Errorf("in the end it says %q", last)
	}
}

func TestATerminalIsLeftAsItWasWhenInterrupted(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("NO_COLOR", "")
	t.Setenv("LC_ALL", "C.UTF-8")
	_, url := serve(t, pod("a", nil))
	c := newTerminal(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	code, out := c.onScreen(ctx, func(_ *screen, all string) {
		if strings.Contains(all, "pod/a") {
			cancel()
		}
	}, "wait", "pod/a", "--for=ready")
	last := out[strings.LastIndex(out, "\x1b[J"):]
	if code != 130 || !strings.Contains(out, "\x1b[33m•\x1b[0m pod/a: starting on node n1") || !strings.Contains(last, "\x1b[?25h") ||
		!strings.Contains(last, "interrupted: nothing is undone") || !strings.Contains(last, "pod/a --for=ready' waits again") {
		t.Errorf("exit code %d: %q", code, out)
	}
}

// TestAStoppedCommandLeavesTheTerminal presses Ctrl-Z: the cursor is shown while the command
// is stopped, and the picture comes back with it.
func TestAStoppedCommandLeavesTheTerminal(t *testing.T) {
	w, url := serve(t, pod("a", nil))
	c := newTerminal(t, url)
	const hidden, shown = "\x1b[?25l", "\x1b[?25h"
	drawn, erased, again := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s := newScreen(t, func(all string) {
		for n, seen := range []chan struct{}{drawn, erased, again} {
			is := strings.Count(all, hidden) >= 1+n/2 && strings.Contains(all, "pod/a")
			if n == 1 {
				is = strings.Contains(all, shown)
			}
			select {
			case <-seen:
			default:
				if is {
					close(seen)
				}
			}
		}
	})
	p, err := os.StartProcess("/proc/self/exe", []string{"sampan"}, &os.ProcAttr{
		Files: []*os.File{s.slave, s.slave, s.slave}, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true},
		Env: append(os.Environ(), "TERM=xterm", asProgram+"="+strings.Join([]string{"--kubeconfig", c.kubeconfig, "wait", "pod/a", "--for=ready", "--timeout=1m"}, "\n")),
	})
	if err != nil {
		t.Fatal(err)
	}
	status := func(options int) (ws syscall.WaitStatus) {
		if _, err := syscall.Wait4(p.Pid, &ws, options, nil); err != nil {
			t.Fatal(err)
		}
		return ws
	}
	<-drawn
	if err := p.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	if ws := status(syscall.WUNTRACED); !ws.Stopped() {
		t.Fatalf("it has not stopped: %v", ws)
	}
	<-erased
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	<-again
	ready := clienttest.Find(w.Server, client.Pods, "default", "a").DeepCopy()
	isReady(ready)
	w.Set(t, ready)
	if ws := status(0); ws.ExitStatus() != 0 {
		t.Errorf("it ended with %v", ws)
	}
	out := s.close()
	if strings.LastIndex(out, hidden) > strings.LastIndex(out, shown) || !strings.HasSuffix(out, "pod/a is ready\r\n") {
		t.Errorf("the terminal is left with %q", out)
	}
}

func TestADumbTerminalGetsLines(t *testing.T) {
	t.Setenv("TERM", "dumb")
	_, url := serve(t, pod("a", nil))
	c := newTerminal(t, url)
	code, out := c.onScreen(t.Context(), func(*screen, string) {}, "wait", "pod/a", "--for=ready", "--timeout=0")
	if code != 3 || strings.Contains(out, "\x1b") || !strings.HasPrefix(out, "waiting for pod/a to be ready: starting on node n1\r\n") {
		t.Errorf("exit code %d: %q", code, out)
	}
}

func TestEachLineOfTheStreamIsAnEvent(t *testing.T) {
	w, url := serve(t, pod("a", nil), pod("b", isReady))
	c := newTerminal(t, url)
	c.onLine = func(s string) {
		if strings.Contains(s, `"starting on node n1"`) {
			w.Set(t, pod("a", isReady))
		}
	}
	got := c.run("wait", "pods", "--all", "--for=ready", "-o", "json")
	if got.code != 0 || got.err != "" {
		t.Fatalf("%+v", got)
	}
	var types []string
	for line := range strings.Lines(got.out) {
		var e struct {
			Type, State, Result string
			ExitCode            *int
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		types = append(types, e.Type+":"+e.State+e.Result)
	}
	last := types[len(types)-1]
	if last != "result:done" || !strings.Contains(strings.Join(types, " "), "progress:waiting") {
		t.Errorf("the stream is %v", types)
	}
}

func TestAVerbWaitsForWhatItWrote(t *testing.T) {
	w, url := serve(t)
	c := newTerminal(t, url)
	file := write(t, t.TempDir()+"/pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: made}\nspec: {containers: [{name: main, image: demo}]}\n")
	c.onLine = func(s string) {
		if strings.HasPrefix(s, "waiting for pod/made") {
			w.Set(t, pod("other", isReady))
			p, err := client.Pods.Get(t.Context(), w.Server, "default", "made")
			if err != nil {
				t.Error(err)
				return
			}
			p = p.DeepCopy()
			isReady(p)
			w.Set(t, p)
		}
	}
	got := c.run("create", "-f", file, "--wait", "--validate=ignore", "--timeout=20s")
	if got.code != 0 || !strings.HasPrefix(got.out, "pod/made created\n") || !strings.HasSuffix(got.out, "pod/made is ready\n") {
		t.Errorf("%+v", got)
	}
}

func TestAPermissionThatIsLostInMidWaitEndsIt(t *testing.T) {
	w, url := serve(t, pod("a", nil))
	c := newTerminal(t, url)
	cut := make(chan struct{})
	c.onLine = func(s string) {
		if strings.HasPrefix(s, "waiting for pod/a") {
			close(cut)
		}
	}
	w.extra["/api/v1/namespaces/default/pods"] = func(rw http.ResponseWriter, r *http.Request) {
		select {
		case <-cut:
			fail(rw, apierrors.NewForbidden(client.Pods.GroupResource(), "", errors.New("no longer")))
			return
		default:
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		over := make(chan struct{})
		defer close(over)
		go func() {
			select {
			case <-cut:
				cancel()
			case <-over:
			}
		}()
		w.resource(rw, r.WithContext(ctx))
	}
	got := c.run("wait", "pod/a", "--for=ready", "--timeout=1m")
	if got.code != 1 || !strings.Contains(got.err, "Error from server (Forbidden): ") {
		t.Errorf("%+v", got)
	}
}

func TestAServerThatStaysAwayIsSaidAndIsAnErrorInTheEnd(t *testing.T) {
	w := newWire(t, pod("a", nil))
	s := httptest.NewServer(w)
	t.Cleanup(s.Close)
	c := newTerminal(t, s.URL)
	c.onLine = func(l string) {
		if strings.HasPrefix(l, "waiting for pod/a") {
			_ = s.Config.Close() // listener and connections, whatever they are at
		}
	}
	got := c.run("wait", "pod/a", "--for=ready", "--timeout=1s")
	if got.code != 1 || !strings.Contains(got.err, "lost the server, trying again: ") || !strings.Contains(got.err, "error: the cluster at "+s.URL) {
		t.Errorf("%+v", got)
	}
}
