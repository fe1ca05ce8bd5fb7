package kubelet_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	criexec "k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/streams"
)

// modern is a kubelet with a container that serves the newest protocols itself. Its node declares that.
type modern struct {
	*container
	t      testing.TB
	server streams.Server
}

// newModern returns a kubelet that behaves as another one, which the test ends.
func newModern(t testing.TB, c *container) *modern { return &modern{container: c, t: t} }

func (m *modern) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	on := func(name string) bool { return r.URL.Query().Get(name) == "1" }
	if strings.HasPrefix(r.URL.Path, "/portForward") {
		m.server.ServePorts(w, r, streams.Ports{Pod: "p", Dial: m.dial})
		return
	}
	asked := streams.Asked{Stdin: on("input"), Stdout: on("output"), Stderr: on("error"), Terminal: on("tty")}
	m.server.ServeCommand(w, r, streams.Command{Asked: asked, Failed: "error executing command in container", Run: func(ctx context.Context, client streams.Client) error {
		sizes := make(chan criexec.TerminalSize)
		g := run.NewGroup(ctx, 0)
		defer g.Stop()
		g.Go(func(ctx context.Context) {
			for {
				select {
				case size := <-client.Resize:
					select {
					case sizes <- criexec.TerminalSize(size):
					case <-ctx.Done():
					}
				case <-ctx.Done():
					return
				}
			}
		})
		return m.exec(ctx, r.URL.Query()["command"], client.Stdin, open{client.Stdout}, open{client.Stderr}, asked.Terminal, sizes)
	}})
}

// open is a writer that need not be closed.
type open struct{ io.Writer }

func (open) Close() error { return nil }

// half is a connection that is closed for writing only.
type half struct{ *net.TCPConn }

func (h half) Close() error { return h.CloseWrite() }

// dial connects to the function that forwards.
func (m *modern) dial(ctx context.Context, port int32) (*net.TCPConn, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	g := run.NewGroup(context.WithoutCancel(ctx), 0)
	accepted := make(chan net.Conn, 1)
	g.Go(func(context.Context) {
		conn, err := l.Accept()
		if err != nil {
			m.t.Error(err)
			return
		}
		defer conn.Close()
		accepted <- conn
		if err := m.forward(port, half{conn.(*net.TCPConn)}); err != nil {
			m.t.Error(err)
		}
	})
	m.t.Cleanup(g.Wait)
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	<-accepted
	return conn.(*net.TCPConn), nil
}
