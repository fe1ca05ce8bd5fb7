package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/runtime/api"
	"github.com/sampan-io/sampan/runtime/container"
	"github.com/sampan-io/sampan/runtime/image/demo"
	"github.com/sampan-io/sampan/runtime/runtimetest"
)

// programs are built once for all tests.
type programs struct {
	once    sync.Once
	err     error
	dir     string
	runtime string
	demo    []byte
}

var built programs

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "init" {
		container.Init() // for the benchmark's floor
	}
	os.Exit(nstest.Main(func() int {
		defer func() { _ = os.RemoveAll(built.dir) }()
		return m.Run()
	}))
}

// build makes the two programs: the runtime, with seccomp where libseccomp is
// there, and the demo.
func build(t testing.TB) {
	t.Helper()
	nstest.NeedRoot(t)
	built.once.Do(func() {
		built.err = func() error {
			var err error
			if built.dir, err = os.MkdirTemp("", "sampan-runtime-test"); err != nil {
				return err
			}
			demoFile := filepath.Join(built.dir, "demo")
			cmd := exec.Command("go", "build", "-o", demoFile, "../cmd/sampan-demo")
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("building the demo: %w\n%s", err, out)
			}
			if built.demo, err = os.ReadFile(demoFile); err != nil {
				return err
			}
			built.runtime = filepath.Join(built.dir, "sampan-runtime")
			out, err := exec.Command("go", "build", "-tags", "seccomp", "-o", built.runtime, "../cmd/sampan-runtime").CombinedOutput()
			if err == nil {
				return nil
			}
			fmt.Fprintf(os.Stderr, "building without seccomp, because with it there is: %s", out)
			if out, err = exec.Command("go", "build", "-o", built.runtime, "../cmd/sampan-runtime").CombinedOutput(); err != nil {
				return fmt.Errorf("building the runtime: %w\n%s", err, out)
			}
			return nil
		}()
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
}

// A node is a runtime process with places of its own.
type node struct {
	t     testing.TB
	dir   string
	name  string
	flags []string
	log   *logBuffer
	proc  *exec.Cmd
	ended chan struct{}

	conn    *grpc.ClientConn
	runtime cri.RuntimeServiceClient
	images  cri.ImageServiceClient
	node    api.NodeClient
}

// logBuffer collects a process' log.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newNode prepares a node; nothing runs yet. After the test everything of it is
// removed with "clean".
func newNode(t testing.TB) *node {
	t.Helper()
	build(t)
	n := &node{t: t, dir: t.TempDir(), log: &logBuffer{}}
	n.name = fmt.Sprintf("sampan-test-%d-%s", os.Getpid(), filepath.Base(filepath.Dir(n.dir))[max(0, len(filepath.Base(filepath.Dir(n.dir)))-6):])
	n.flags = []string{
		"--socket", n.path("s"), "--root", n.path("root"), "--state", n.path("state"), "--cgroup", n.name, "--bridge", "spt0",
		"--pod-cidr", "10.99.0.0/24", "--service-cidr", "10.98.0.0/24", "--table", n.name,
	}
	t.Cleanup(func() {
		if n.conn != nil {
			n.conn.Close()
		}
		if n.proc != nil && !n.over() {
			_ = n.proc.Process.Kill()
			<-n.ended
		}
		if out, err := n.command("clean").CombinedOutput(); err != nil {
			t.Errorf("clean: %v\n%s", err, out)
		}
		if t.Failed() {
			t.Logf("log of the runtime:\n%s", n.log)
		}
	})
	return n
}

// flag changes the value of a flag.
func (n *node) flag(name, value string) { n.flags[slices.Index(n.flags, name)+1] = value }

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) command(verb string) *exec.Cmd {
	return exec.Command(built.runtime, append([]string{verb}, n.flags...)...)
}

func (n *node) over() bool {
	select {
	case <-n.ended:
		return true
	default:
		return false
	}
}

// start runs the process and waits until it answers.
func (n *node) start() *node {
	n.t.Helper()
	return n.startProgram(built.runtime)
}

func (n *node) startProgram(program string) *node {
	n.t.Helper()
	n.proc = exec.Command(program, append([]string{"serve"}, n.flags...)...)
	n.proc.Stderr = n.log
	if err := n.proc.Start(); err != nil {
		n.t.Fatal(err)
	}
	ended := make(chan struct{})
	n.ended = ended
	proc := n.proc
	go func() { _ = proc.Wait(); close(ended) }() // the test's own
	n.connect()
	return n
}

func (n *node) connect() {
	n.t.Helper()
	if n.conn == nil {
		conn, err := grpc.NewClient("unix://"+n.path("s"), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
			grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 20 * time.Second, Backoff: backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1, MaxDelay: 5 * time.Millisecond}}))
		if err != nil {
			n.t.Fatal(err)
		}
		n.conn = conn
		n.runtime, n.images, n.node = cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn), api.NewNodeClient(conn)
	}
	ctx, cancel := context.WithCancelCause(n.kit().Context())
	defer cancel(nil)
	ended := n.ended
	go func() {
		select {
		case <-ended:
			cancel(errors.New("the runtime has ended"))
		case <-ctx.Done():
		}
	}()
	_, err := n.runtime.Version(ctx, &cri.VersionRequest{}, grpc.WaitForReady(true))
	for status.Code(err) == codes.Unavailable && ctx.Err() == nil { // it was sent to the former process, which had just ended
		_, err = n.runtime.Version(ctx, &cri.VersionRequest{}, grpc.WaitForReady(true))
	}
	if err != nil {
		n.t.Fatalf("the runtime doesn't answer: %v (%v)\n%s", err, context.Cause(ctx), n.log)
	}
}

// withDemo imports the demo images.
func (n *node) withDemo() *node {
	n.t.Helper()
	images, err := demo.New(built.demo)
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.importArchive(images.Archive(), ""); err != nil {
		n.t.Fatal(err)
	}
	return n
}

func (n *node) importArchive(archive io.Reader, name string) (*api.ImportResponse, error) {
	stream, err := n.node.Import(n.kit().Context())
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 256<<10)
	for {
		k, err := archive.Read(buf)
		if k > 0 {
			if err := stream.Send(&api.ImportRequest{Data: buf[:k], Name: name}); err != nil {
				break // CloseAndRecv knows why
			}
		}
		if err != nil {
			break
		}
	}
	return stream.CloseAndRecv()
}

func (n *node) kit() *runtimetest.Kit {
	return runtimetest.NewKit(n.t, runtimetest.Target{Runtime: n.runtime, Images: n.images, Image: demo.Repository + ":v1", LogDir: n.path("logs")})
}

func (n *node) kill() {
	n.t.Helper()
	if err := n.proc.Process.Kill(); err != nil {
		n.t.Fatal(err)
	}
	<-n.ended
}

// terminate ends the runtime as an init system would.
func (n *node) terminate() {
	n.t.Helper()
	if err := n.proc.Process.Signal(syscall.SIGTERM); err != nil {
		n.t.Fatal(err)
	}
	<-n.ended
	if code := n.proc.ProcessState.ExitCode(); code != 0 {
		n.t.Errorf("the runtime ended with %d", code)
	}
}

func TestRuntime(t *testing.T) {
	n := newNode(t).start().withDemo()
	runtimetest.Run(t, runtimetest.Target{
		Runtime: n.runtime, Images: n.images, Image: demo.Repository + ":v1", LogDir: n.path("logs"),
	})
	n.checkMainThread()
}

// checkMainThread fails the test if the main thread of the runtime has stayed in the
// mount namespace of a container: that would keep the namespace, and all mounts in it,
// for as long as the runtime lives, and show the wrong mounts in /proc/self.
func (n *node) checkMainThread() {
	n.t.Helper()
	got, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", n.proc.Process.Pid))
	want, ownErr := os.Readlink("/proc/self/ns/mnt")
	if got != want || err != nil || ownErr != nil {
		n.t.Errorf("the main thread of the runtime is in %s, want %s (%v, %v)", got, want, err, ownErr)
	}
}

// TestStartReturnsAfterExecve looks at the program of a container as soon as
// StartContainer has returned: it must not be the runtime's own any more.
func TestStartReturnsAfterExecve(t *testing.T) {
	n := newNode(t).start().withDemo()
	k := n.kit()
	p := k.PodConfig("brief")
	pod := k.Pod(p)
	for i := range 25 {
		c := k.ContainerConfig("main", "sleep")
		c.Metadata.Attempt = uint32(i)
		id, _ := k.ContainerIn(pod, p, c)
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", n.pidOf(id)))
		if err != nil || filepath.Base(exe) != "demo" {
			t.Errorf("round %d: the container's program is %q, %v, want the demo", i, exe, err)
		}
		if _, err := n.runtime.RemoveContainer(k.Context(), &cri.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		n.checkMainThread()
	}
}
