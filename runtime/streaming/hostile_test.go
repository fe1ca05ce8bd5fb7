package streaming

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/streams"
)

const createLimit = 30 * time.Second // for streams

// A waiter waits for the end of its context.
type waiter struct {
	Handler
	started chan struct{} // closed first
	cause   chan error    // of the end
}

func (w *waiter) ServeExec(ctx context.Context, _ *cri.ExecRequest, _ streams.Client) error {
	close(w.started)
	<-ctx.Done()
	w.cause <- context.Cause(ctx)
	return nil
}

// serving runs a server, and connects to a URL for an exec.
func serving(t *testing.T, h Handler, gone error) (net.Conn, *url.URL) {
	t.Helper()
	s := New(Options{Handler: h, Gone: gone})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	g := run.NewGroup(ctx, 0)
	t.Cleanup(g.Wait)
	t.Cleanup(cancel)
	g.Go(func(ctx context.Context) { _ = s.Run(ctx) })
	<-s.Ready()
	res, err := s.Exec(&cri.ExecRequest{ContainerId: "c", Cmd: []string{"x"}, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(res.GetUrl())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, u
}

// TestWrongFramesEndConnection has a client that creates its streams and then sends a frame that is wrong, but does not
// disconnect.
func TestWrongFramesEndConnection(t *testing.T) {
	gone := errors.New("gone")
	w := &waiter{started: make(chan struct{}), cause: make(chan error, 1)}
	conn, u := serving(t, w, gone)
	_, read := spdyClient(t, conn, u)
	<-w.started
	if _, err := conn.Write(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if cause := <-w.cause; !errors.Is(cause, gone) {
		t.Errorf("the handler's context ended with %v", cause)
	}
	_, _ = read() // until the server has closed the connection
}

// TestClientWithoutStreamsIsDisconnected has clients that upgrade the connection and do nothing more, or send a wrong
// frame.
func TestClientWithoutStreamsIsDisconnected(t *testing.T) {
	for name, sent := range map[string][]byte{"wrong frame": make([]byte, 8), "nothing": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(Options{Gone: errors.New("gone")})
				s.setBase("http://x")
				res, err := s.Exec(&cri.ExecRequest{ContainerId: "c", Cmd: []string{"x"}, Stdout: true})
				if err != nil {
					t.Fatal(err)
				}
				client, end := net.Pipe()
				server := &http.Server{Handler: http.HandlerFunc(s.route)}
				g := run.NewGroup(t.Context(), 0)
				listener := &oneConn{conn: end, closed: make(chan struct{})}
				g.Go(func(context.Context) { _ = server.Serve(listener) })
				u, err := url.Parse(res.GetUrl())
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				upgradeSPDY(t, client, u)
				if _, err := client.Write(sent); err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, client); err != nil {
					t.Error(err)
				}
				if waited := time.Since(start); waited > createLimit || sent != nil && waited > 0 {
					t.Errorf("the connection was closed after %v", waited)
				}
				_ = server.Close()
				g.Wait()
				time.Sleep(createLimit) // the library waits on
			})
		})
	}
}

// A oneConn is a listener that accepts one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
}

func (o *oneConn) Accept() (net.Conn, error) {
	if c := o.conn; c != nil {
		o.conn = nil
		return c, nil
	}
	<-o.closed
	return nil, net.ErrClosed
}

func (o *oneConn) Close() error {
	close(o.closed)
	return nil
}

func (o *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
