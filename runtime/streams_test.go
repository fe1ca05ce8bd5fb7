package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"

	"github.com/sampan-io/sampan/runtime/runtimetest"
)

// executor connects to a URL of the runtime as kubectl does to that of a kubelet.
func executor(t *testing.T, address string, webSocket bool) remotecommand.Executor {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil || u.Hostname() != "127.0.0.1" {
		t.Fatalf("the URL is %q (%v), want one of 127.0.0.1", address, err)
	}
	var e remotecommand.Executor
	if webSocket {
		e, err = remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{}, http.MethodGet, address, "v4.channel.k8s.io")
	} else {
		e, err = remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, u)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// exec runs a command of the demo program with streams, and returns the exit code; -1 if the error is another one.
func (n *node) exec(ctx context.Context, t *testing.T, id string, o remotecommand.StreamOptions, cmd ...string) (int, error) {
	t.Helper()
	return n.execOver(ctx, t, false, id, o, append([]string{"/bin/demo"}, cmd...)...)
}

func (n *node) execOver(ctx context.Context, t *testing.T, webSocket bool, id string, o remotecommand.StreamOptions, cmd ...string) (int, error) {
	t.Helper()
	res, err := n.runtime.Exec(ctx, &cri.ExecRequest{
		ContainerId: id, Cmd: cmd, Tty: o.Tty, Stdin: o.Stdin != nil, Stdout: o.Stdout != nil, Stderr: o.Stderr != nil,
	})
	if err != nil {
		return -1, err
	}
	return exitCode(executor(t, res.GetUrl(), webSocket).StreamWithContext(ctx, o))
}

func exitCode(err error) (int, error) {
	var exit utilexec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		return exit.ExitStatus(), nil
	}
	return -1, err
}

// attach attaches to a container.
func (n *node) attach(ctx context.Context, t *testing.T, id string, o remotecommand.StreamOptions) error {
	t.Helper()
	res, err := n.runtime.Attach(ctx, &cri.AttachRequest{
		ContainerId: id, Tty: o.Tty, Stdin: o.Stdin != nil, Stdout: o.Stdout != nil, Stderr: o.Stderr != nil,
	})
	if err != nil {
		return err
	}
	return executor(t, res.GetUrl(), false).StreamWithContext(ctx, o)
}

// sizes is a queue of terminal sizes.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	if size, ok := <-s; ok {
		return &size
	}
	return nil
}

// transcript collects output, and waits for parts of it.
type transcript struct {
	mu      sync.Mutex
	text    bytes.Buffer // guarded by mu
	changed *sync.Cond
}

func newTranscript() *transcript {
	t := &transcript{}
	t.changed = sync.NewCond(&t.mu)
	return t
}

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.changed.Broadcast()
	const enough = 1 << 20
	if t.text.Len() < enough {
		t.text.Write(p)
	}
	return len(p), nil
}

// await returns when the text is there.
func (t *transcript) await(tb testing.TB, text string) { tb.Helper(); t.awaitCount(tb, text, 1) }

// awaitCount returns when the text is there so many times.
func (t *transcript) awaitCount(tb testing.TB, text string, count int) {
	tb.Helper()
	const patience = 30 * time.Second
	late := time.AfterFunc(patience, t.changed.Broadcast)
	defer late.Stop()
	begin := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for strings.Count(t.text.String(), text) < count {
		if time.Since(begin) >= patience {
			out := t.text.String()
			tb.Fatalf("%q does not come %d times; the output ends with %q", text, count, out[max(0, len(out)-500):])
		}
		t.changed.Wait()
	}
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

func TestExecStreams(t *testing.T) {
	n := newNode(t).start().withDemo()
	k := n.kit()
	id, _ := k.Container("sleep")
	for _, webSocket := range []bool{false, true} {
		t.Run(map[bool]string{false: "SPDY", true: "WebSocket"}[webSocket], func(t *testing.T) {
			run := func(o remotecommand.StreamOptions, cmd ...string) (int, error) {
				return n.execOver(k.Context(), t, webSocket, id, o, append([]string{"/bin/demo"}, cmd...)...)
			}
			var out, errs bytes.Buffer
			if code, err := run(remotecommand.StreamOptions{Stdout: &out, Stderr: &errs}, "echo", "to", "you"); code != 0 || err != nil || out.String() != "to you\n" || errs.Len() > 0 {
				t.Errorf("echo: %d %v, output %q %q", code, err, &out, &errs)
			}
			if code, err := run(remotecommand.StreamOptions{Stdout: io.Discard, Stderr: &errs}, "complain", "no"); code != 0 || err != nil || errs.String() != "no\n" {
				t.Errorf("complain: %d %v, errors %q", code, err, &errs)
			}
			if code, err := run(remotecommand.StreamOptions{Stdout: io.Discard}, "exit", "42"); code != 42 || err != nil {
				t.Errorf("exit 42: %d %v", code, err)
			}
			out.Reset()
			size := remotecommand.TerminalSize{Width: 101, Height: 33}
			queue := make(sizes, 1)
			queue <- size
			code, err := run(remotecommand.StreamOptions{Stdin: onceThenBlock("\x04"), Stdout: &out, Tty: true, TerminalSizeQueue: queue}, "terminal")
			if want := "terminal 101 columns 33 rows, xterm\r\n"; code != 0 || err != nil || !strings.HasPrefix(out.String(), want) && !strings.HasSuffix(out.String(), want) {
				t.Errorf("terminal: %d %v, output %q, want %q", code, err, &out, want)
			}
			close(queue)
			_, err = n.execOver(k.Context(), t, webSocket, id, remotecommand.StreamOptions{Stdout: io.Discard}, "nothing")
			if want := `exec: "nothing": executable file not found in $PATH`; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a command that is not there: %v, want %s", err, want)
			}
		})
	}
	t.Run("input", func(t *testing.T) {
		var out bytes.Buffer
		code, err := n.exec(k.Context(), t, id, remotecommand.StreamOptions{Stdin: strings.NewReader("in and out"), Stdout: &out}, "cat")
		if code != 0 || err != nil || out.String() != "in and out" {
			t.Errorf("cat: %d %v %q", code, err, &out)
		}
		// A command that ends before its input does.
		code, err = n.exec(k.Context(), t, id, remotecommand.StreamOptions{Stdin: endless{}, Stdout: io.Discard}, "exit", "7")
		if code != 7 || err != nil {
			t.Errorf("with endless input: %d %v", code, err)
		}
	})
	t.Run("signal", func(t *testing.T) {
		p := k.PodConfig("target")
		pod := k.Pod(p)
		other, _ := k.ContainerIn(pod, p, k.ContainerConfig("main", "sleep"))
		started, done := newTranscript(), make(chan int, 1)
		go func() {
			code, _ := n.exec(k.Context(), t, other, remotecommand.StreamOptions{Stdin: blocking{}, Stdout: started}, "terminal")
			done <- code
		}()
		started.await(t, "no terminal")
		if _, err := n.runtime.StopContainer(k.Context(), &cri.StopContainerRequest{ContainerId: other}); err != nil {
			t.Fatal(err)
		}
		if code := <-done; code != 137 {
			t.Errorf("a command that was killed: %d, want 137", code)
		}
	})
	t.Run("refused", func(t *testing.T) {
		for name, req := range map[string]*cri.ExecRequest{
			"no streams": {ContainerId: id, Cmd: []string{"x"}}, "no command": {ContainerId: id, Stdout: true},
			"terminal and errors": {ContainerId: id, Cmd: []string{"x"}, Tty: true, Stdout: true, Stderr: true},
		} {
			if _, err := n.runtime.Exec(k.Context(), req); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := n.runtime.Exec(k.Context(), &cri.ExecRequest{ContainerId: "none", Cmd: []string{"x"}, Stdout: true}); status.Code(err) != codes.NotFound {
			t.Errorf("no container: %v", err)
		}
		res, err := n.runtime.Exec(k.Context(), &cri.ExecRequest{ContainerId: id, Cmd: []string{"/bin/demo", "id"}, Stdout: true})
		if err != nil {
			t.Fatal(err)
		}
		o := remotecommand.StreamOptions{Stdout: io.Discard}
		if err := executor(t, res.GetUrl(), false).StreamWithContext(k.Context(), o); err != nil {
			t.Error(err)
		}
		if err := executor(t, res.GetUrl(), false).StreamWithContext(k.Context(), o); err == nil {
			t.Error("a URL was good for two requests")
		}
	})
}

// endless is input that does not end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// blocking is input that never comes.
type blocking struct{}

func (blocking) Read([]byte) (int, error) { select {} }

func TestExecStreamsLoseNothing(t *testing.T) {
	n := newNode(t).start().withDemo()
	k := n.kit()
	id, _ := k.Container("sleep")
	const size = 100 << 20
	var in, out counter
	in.left = size
	// Without the deadline of the kit, which ends the copy on a slow machine under the race detector.
	code, err := n.exec(t.Context(), t, id, remotecommand.StreamOptions{Stdin: &in, Stdout: &out}, "cat")
	if code != 0 || err != nil || out.seen.Load() != size || out.wrong.Load() {
		t.Errorf("cat of %d bytes: %d %v, %d came back, wrong: %v", size, code, err, out.seen.Load(), out.wrong.Load())
	}
	const many = 200
	var clients sync.WaitGroup
	for i := range many {
		clients.Go(func() {
			var out bytes.Buffer
			code, err := n.exec(k.Context(), t, id, remotecommand.StreamOptions{Stdout: &out, Stderr: io.Discard}, "exit", strconv.Itoa(i), "word")
			if code != i%256 || err != nil || out.String() != "word\n" {
				t.Errorf("command %d of many at once: %d %v %q", i, code, err, &out)
			}
		})
	}
	clients.Wait()
	if memory := n.resident(); memory > 200<<20 {
		t.Errorf("the runtime uses %d MiB", memory>>20)
	}
}

// resident is the memory that the runtime uses.
func (n *node) resident() int {
	n.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", n.proc.Process.Pid))
	if err != nil {
		n.t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	if err != nil {
		n.t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// counter is a source and a sink of bytes that count up.
type counter struct {
	left int
	next byte
	seen atomic.Int64
	want byte
	// wrong is set if another byte than the next one was written.
	wrong atomic.Bool
}

func (c *counter) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), c.left)
	for i := range p[:n] {
		p[i] = c.next
		c.next++
	}
	c.left -= n
	return n, nil
}

func (c *counter) Write(p []byte) (int, error) {
	for _, b := range p {
		if b != c.want {
			c.wrong.Store(true)
		}
		c.want++
	}
	c.seen.Add(int64(len(p)))
	return len(p), nil
}

// TestExecOutlivesItsClient checks that a command is not killed when its client disconnects, and ends when it writes.
func TestExecOutlivesItsClient(t *testing.T) {
	n := newNode(t).start().withDemo()
	k := n.kit()
	id, _ := k.Container("sleep")
	processes := func() string {
		out, _, _ := k.Exec(id, "list", "/proc")
		return out
	}
	before := processes()
	for name, tt := range map[string]struct {
		tty    bool
		cmd    []string
		begins string
		stay   bool
	}{
		"a silent command": {false, []string{"sleep", "1000"}, "", true},
		"a loud command":   {false, []string{"flood", "100000000000"}, "abc", false},
		"with a terminal":  {true, []string{"terminal"}, "terminal", false},
	} {
		t.Run(name, func(t *testing.T) {
			out := newTranscript()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = n.exec(ctx, t, id, remotecommand.StreamOptions{Stdin: blocking{}, Stdout: out, Tty: tt.tty}, tt.cmd...)
			}()
			if tt.stay {
				for strings.Count(processes(), "\n") == strings.Count(before, "\n") {
				}
			} else {
				out.await(t, tt.begins)
			}
			cancel()
			<-ended
			if tt.stay {
				if strings.Count(processes(), "\n") == strings.Count(before, "\n") {
					t.Error("the command was killed")
				}
				before = processes()
				return
			}
			for strings.Count(processes(), "\n") != strings.Count(before, "\n") {
			}
		})
	}
}

// interactive starts a container with a terminal that answers each line with the size of the terminal.
func interactive(k *runtimetest.Kit, change func(c *cri.ContainerConfig)) (id, log string) {
	p := k.PodConfig("interactive")
	c := k.ContainerConfig("main", "terminal")
	c.Tty, c.Stdin = true, true
	if change != nil {
		change(c)
	}
	return k.ContainerIn(k.Pod(p), p, c)
}

func TestAttachToTerminal(t *testing.T) {
	for name, interrupt := range map[string]func(n *node){
		"at once": func(*node) {},
		"after a restart in place": func(n *node) {
			restarts := n.info().GetRestarts()
			if err := n.proc.Process.Signal(syscall.SIGHUP); err != nil {
				n.t.Fatal(err)
			}
			n.awaitRestarts(restarts + 1)
		},
		"after a kill": func(n *node) { n.kill(); n.start() },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t).start().withDemo()
			k := n.kit()
			id, log := interactive(k, nil)
			interrupt(n)

			watcher := newTranscript()
			watching := make(chan error, 1)
			go func() {
				watching <- n.attach(k.Context(), t, id, remotecommand.StreamOptions{Stdout: watcher, Tty: true})
			}()
			for range 2 { // the second client comes when the first is gone
				out := newTranscript()
				in, lines := io.Pipe()
				queue := make(sizes, 1)
				queue <- remotecommand.TerminalSize{Width: 77, Height: 11}
				done := make(chan error, 1)
				go func() {
					done <- n.attach(k.Context(), t, id, remotecommand.StreamOptions{Stdin: in, Stdout: out, Tty: true, TerminalSizeQueue: queue})
				}()
				for width := range 3 {
					queue <- remotecommand.TerminalSize{Width: uint16(80 + width), Height: 24}
					// Each line is answered; the size may be applied later than the first one is.
					for want := fmt.Sprintf("terminal %d columns 24 rows", 80+width); !strings.Contains(out.String(), want); {
						answers := strings.Count(out.String(), " rows,")
						if _, err := io.WriteString(lines, "\n"); err != nil {
							t.Fatal(err)
						}
						out.awaitCount(t, " rows,", answers+1)
					}
				}
				_ = lines.Close() // detaches
				if err := <-done; err != nil {
					t.Errorf("detached: %v", err)
				}
				close(queue)
			}
			interrupt(n)
			if st := k.Status(id); st.GetState() != cri.ContainerState_CONTAINER_RUNNING {
				t.Fatalf("the container is %v after its clients have left", st.GetState())
			}
			if name == "at once" {
				watcher.await(t, "terminal 82 columns 24 rows")
			}
			// The end of file character ends the program.
			out := newTranscript()
			if err := n.attach(k.Context(), t, id, remotecommand.StreamOptions{Stdin: onceThenBlock("\x04"), Stdout: out, Tty: true}); err != nil {
				t.Errorf("attached until the end: %v", err)
			}
			if name == "at once" {
				if err := <-watching; err != nil {
					t.Errorf("watching until the end: %v", err)
				}
			}
			if st := k.Ended(id); st.GetExitCode() != 0 || st.GetReason() != "Completed" {
				t.Errorf("the container ended with %d %s", st.GetExitCode(), st.GetReason())
			}
			if text := k.Log(log, "stdout"); !strings.Contains(text, "terminal 82 columns 24 rows, xterm\r\n") {
				t.Errorf("the log is %q", text)
			}
		})
	}
}

// onceThenBlock returns input that begins with text and does not end.
func onceThenBlock(text string) io.Reader {
	return io.MultiReader(strings.NewReader(text), blocking{})
}

func TestAttachStdin(t *testing.T) {
	n := newNode(t).start().withDemo()
	k := n.kit()
	start := func(name string, once bool) (id, log string) {
		p := k.PodConfig(name)
		c := k.ContainerConfig("main", "cat")
		c.Stdin, c.StdinOnce = true, once
		return k.ContainerIn(k.Pod(p), p, c)
	}
	id, log := start("once", true)
	restarts := n.info().GetRestarts()
	if err := n.proc.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	n.awaitRestarts(restarts + 1)
	n.kill()
	n.start()
	const size = 20 << 20
	var in, out counter
	in.left = size
	if err := n.attach(k.Context(), t, id, remotecommand.StreamOptions{Stdin: &in, Stdout: &out, Stderr: io.Discard}); err != nil {
		t.Errorf("attach: %v", err)
	}
	if out.seen.Load() != size || out.wrong.Load() {
		t.Errorf("of %d bytes %d came back, wrong: %v", size, out.seen.Load(), out.wrong.Load())
	}
	if st := k.Ended(id); st.GetExitCode() != 0 {
		t.Errorf("at the end of its input the container ended with %d %s", st.GetExitCode(), st.GetReason())
	}
	if _, err := os.Stat(log); err != nil {
		t.Error(err)
	}

	id, _ = start("open", false)
	for i := range 2 {
		out := newTranscript()
		in, words := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- n.attach(k.Context(), t, id, remotecommand.StreamOptions{Stdin: in, Stdout: out}) }()
		word := fmt.Sprintf("word %d\n", i)
		if _, err := io.WriteString(words, word); err != nil {
			t.Fatal(err)
		}
		out.await(t, word)
		_ = words.Close()
		if err := <-done; err != nil {
			t.Errorf("detached: %v", err)
		}
	}
	if st := k.Status(id); st.GetState() != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the container is %v after its client has left", st.GetState())
	}
	if err := n.attach(k.Context(), t, "none", remotecommand.StreamOptions{Stdout: io.Discard}); status.Code(err) != codes.NotFound {
		t.Errorf("no container: %v", err)
	}
}

// waiting returns how many bytes are in a FIFO.
func waiting(t *testing.T, path string) int {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rc, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	bytes, failed := 0, error(nil)
	if err := rc.Control(func(fd uintptr) { bytes, failed = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return bytes
}

// TestExitCodeSurvivesTheRuntime checks what is known of containers that ended while no runtime was running.
func TestExitCodeSurvivesTheRuntime(t *testing.T) {
	n := newNode(t).start().withDemo()
	k := n.kit()
	p := k.PodConfig("ends")
	pod := k.Pod(p)
	c := k.ContainerConfig("main", "cat")
	c.Stdin = true
	id, log := k.ContainerIn(pod, p, c)
	pid := n.pidOf(id)
	in, words := io.Pipe()
	out := newTranscript()
	go func() { _ = n.attach(k.Context(), t, id, remotecommand.StreamOptions{Stdin: in, Stdout: out}) }()
	if _, err := io.WriteString(words, "first\n"); err != nil {
		t.Fatal(err)
	}
	out.await(t, "first\n")
	n.kill()
	// The store has the FIFOs of the container.
	if err := os.WriteFile(n.path("state/containers/"+id+"/stdin"), []byte("last words\n"), 0); err != nil {
		t.Fatal(err)
	}
	for waiting(t, n.path("state/containers/"+id+"/stdout")) == 0 {
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for alive(pid) {
	}
	n.start()
	st := k.Ended(id)
	if st.GetExitCode() == 255 && st.GetReason() == "Unknown" {
		t.Skip("this kernel does not keep exit codes (before 6.15)")
	}
	if st.GetExitCode() != 137 || st.GetReason() != "Error" {
		t.Errorf("the container ended with %d %s, want 137 Error", st.GetExitCode(), st.GetReason())
	}
	if got := k.Log(log, "stdout"); got != "first\nlast words\n" {
		t.Errorf("the log is %q", got)
	}
}

func TestPortForward(t *testing.T) {
	n := newNode(t).start().withDemo()
	k := n.kit()
	p := k.PodConfig("server")
	pod := k.Pod(p)
	for _, port := range []string{"8080", "6:8081"} {
		id, log := k.ContainerIn(pod, p, k.ContainerConfig("p"+strings.ReplaceAll(port, ":", "-"), "mirror", port))
		awaitLog(t, k, id, log, "listening")
	}
	host := k.PodConfig("host")
	host.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
	hostPod := k.Pod(host)
	id, log := k.ContainerIn(hostPod, host, k.ContainerConfig("main", "mirror", "18082"))
	awaitLog(t, k, id, log, "listening")

	// A sandbox without containers has a network, too. This one has that of the host.
	empty := k.PodConfig("empty")
	empty.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE

	local := n.forward(t, pod, 8080, 8081)
	hostLocal, emptyLocal := n.forward(t, hostPod, 18082), n.forward(t, k.Pod(empty), 18082)
	for _, port := range []uint16{local.ports[0], local.ports[1], hostLocal.ports[0], emptyLocal.ports[0]} {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "hello"); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); err != nil || string(got) != "hello5 bytes\n" {
			t.Errorf("after the client has closed its half: %q %v", got, err)
		}
		_ = conn.Close()
	}
	const many, size = 50, 1 << 20
	var clients sync.WaitGroup
	for range many {
		clients.Go(func() {
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", local.ports[0]))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			var out counter
			in := counter{left: size}
			var back sync.WaitGroup
			back.Go(func() { _, _ = io.Copy(&out, io.LimitReader(conn, size)) })
			if _, err := io.Copy(conn, &in); err != nil {
				t.Error(err)
			}
			back.Wait()
			if out.seen.Load() != size || out.wrong.Load() {
				t.Errorf("of %d bytes %d came back, wrong: %v", size, out.seen.Load(), out.wrong.Load())
			}
		})
	}
	clients.Wait()
	if text := n.forwardError(t, pod, 9999); !strings.Contains(text, `error forwarding port 9999 to pod `+pod) ||
		!strings.Contains(text, `failed to connect to localhost:9999 inside namespace "`+pod+
			`", IPv4: dial tcp4 127.0.0.1:9999: connect: connection refused IPv6 dial tcp6 [::1]:9999: connect: connection refused`) {
		t.Errorf("a port without a server: %q", text)
	}
	bare := k.Pod(k.PodConfig("bare"))
	if text := n.forwardError(t, bare, 8080); !strings.Contains(text, `failed to connect to localhost:8080 inside namespace "`+bare+`"`) {
		t.Errorf("a sandbox without containers: %q", text)
	}
	if _, err := n.runtime.StopPodSandbox(k.Context(), &cri.StopPodSandboxRequest{PodSandboxId: bare}); err != nil {
		t.Fatal(err)
	}
	_, err := n.runtime.PortForward(k.Context(), &cri.PortForwardRequest{PodSandboxId: bare})
	if want := fmt.Sprintf("sandbox container %q is not running", bare); status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != want {
		t.Errorf("a stopped sandbox: %v, want %s", err, want)
	}
	if _, err := n.runtime.PortForward(k.Context(), &cri.PortForwardRequest{PodSandboxId: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("no pod: %v", err)
	}
}

// forwarding is a running port-forward.
type forwarding struct {
	ports []uint16 // local ones
}

func (n *node) forwardDialer(t *testing.T, pod string) httpstream.Dialer {
	t.Helper()
	res, err := n.runtime.PortForward(n.kit().Context(), &cri.PortForwardRequest{PodSandboxId: pod})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(res.GetUrl())
	if err != nil {
		t.Fatal(err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
}

// forwardError returns the error that the runtime reports for a connection.
func (n *node) forwardError(t *testing.T, pod string, port int) string {
	t.Helper()
	conn, _, err := n.forwardDialer(t, pod).Dial("portforward.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var text string
	headers := http.Header{}
	headers.Set("port", strconv.Itoa(port))
	headers.Set("requestID", "1")
	headers.Set("streamType", "error")
	errs, err := conn.CreateStream(headers)
	if err != nil {
		t.Fatal(err)
	}
	headers.Set("streamType", "data")
	if _, err := conn.CreateStream(headers); err != nil {
		t.Fatal(err)
	}
	data, _ := io.ReadAll(errs)
	text = string(data)
	return text
}

func (n *node) forward(t *testing.T, pod string, ports ...int) *forwarding {
	t.Helper()
	var pairs []string
	for _, port := range ports {
		pairs = append(pairs, fmt.Sprintf(":%d", port))
	}
	f := &forwarding{}
	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	pf, err := portforward.New(n.forwardDialer(t, pod), pairs, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- pf.ForwardPorts() }()
	t.Cleanup(func() { close(stop); <-ended })
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	all, err := pf.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		f.ports = append(f.ports, p.Local)
	}
	return f
}

// awaitLog returns when the text is in the log of a running container.
func awaitLog(t *testing.T, k *runtimetest.Kit, id, log, text string) {
	t.Helper()
	for {
		if strings.Contains(k.Log(log, "stdout"), text) {
			return
		}
		if st := k.Status(id); st.GetState() != cri.ContainerState_CONTAINER_RUNNING {
			t.Fatalf("the container has ended: %s", k.Log(log, "stderr"))
		}
	}
}
