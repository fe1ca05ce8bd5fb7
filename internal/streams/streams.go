// Package streams serves the protocols in which clients of Kubernetes execute commands in containers, attach to these and forward
// ports: SPDY/3.1 (v1 to v4 of the remote command protocol, v1 of port forwarding), also in the messages of a WebSocket, and WebSockets
// with channels (up to v5).
package streams

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/sampan-io/sampan/internal/channels"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdy"
)

// Asked are the streams of a command or container that a client wants.
type Asked struct{ Stdin, Stdout, Stderr, Terminal bool }

// A Client has the streams of one client. A stream that the client did not ask for is nil.
type Client struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Resize         <-chan channels.Size
}

// A Command is what the streams of a client are for.
type Command struct {
	Asked  Asked
	Failed string // begins the text of an error

	// Run does the work. It returns an error of type k8s.io/utils/exec.ExitError for a command that ended with an exit code other
	// than zero. ctx is cancelled when the client disconnects, with the cause of [Server], and as the context of the request is.
	Run func(ctx context.Context, client Client) error
}

// Ports are those of a pod that a client wants to be forwarded.
type Ports struct {
	Pod string // in the texts of errors

	// Named are the ports of a client with a WebSocket. Clients of SPDY name one for each connection.
	Named []int32

	// Open is called when a client of SPDY opens the first stream for a connection, and the function that it returns after the end of
	// both. An error refuses the stream, without a reason for the client. Nil means that there may be any number.
	Open func() (end func(), err error)

	// Begin is called before each connection, and the function that it returns after it. An error refuses the connection, and its
	// client gets it. Nil means that there may be any number.
	Begin func() (end func(), err error)

	// Dial connects to a port. Its context is as that of [Command].
	Dial func(ctx context.Context, port int32) (*net.TCPConn, error)
}

// A Server serves streams. The zero value can be used. It must not be copied.
type Server struct {
	Gone error        // the cause that contexts get if the client disconnects; nil means context.Canceled
	Log  *slog.Logger // nil means slog.Default

	spdy    spdy.Server
	sockets channels.Server
	tunnels sync.Pool // memory for writing
	pieces  sync.Pool // of what pods send
}

func (s *Server) log() *slog.Logger {
	if s.Log == nil {
		return slog.Default()
	}
	return s.Log
}

// ServeCommand answers a request for the streams of a command. It returns when the connection has ended.
func (s *Server) ServeCommand(w http.ResponseWriter, r *http.Request, c Command) {
	out, r, end := s.take(w, r)
	defer end()
	if wsstream.IsWebSocketRequest(r) {
		s.serveChannels(out, r, c)
		return
	}
	g := run.NewGroup(context.WithoutCancel(r.Context()), 0)
	defer g.Wait() // the end of the connection ends the reading of sizes
	s.refused("SPDY", serveCommandSPDY(out, r, &s.spdy, spdyCommand{
		stdin: c.Asked.Stdin, stdout: c.Asked.Stdout, stderr: c.Asked.Stderr, terminal: c.Asked.Terminal,
		run: func(ctx context.Context, protocol string, client spdyClient) []byte {
			sizes := make(chan channels.Size, 1)
			if client.resize != nil {
				g.Go(func(context.Context) { channels.ReadSizes(client.resize, sizes) })
			}
			err := s.run(ctx, c, Client{Stdin: client.stdin, Stdout: client.stdout, Stderr: client.stderr, Resize: sizes})
			return resultText(protocol, err, c.Failed)
		},
	}))
}

// refused logs an error of a request that was refused.
func (s *Server) refused(protocol string, err error) {
	if err != nil {
		s.log().Debug("a stream was refused, or broken off", "protocol", protocol, "err", err)
	}
}

// ServePorts answers a request for ports of a pod. It returns when the connection has ended.
func (s *Server) ServePorts(w http.ResponseWriter, r *http.Request, p Ports) {
	out, r, end := s.take(w, r)
	defer end()
	f := s.forwarder(p)
	service := portService{pod: p.Pod, open: anyNumber(p.Open), forward: func(ctx context.Context, g *run.Group, port int32, stream io.ReadWriteCloser) error {
		return f.forward(ctx, g, port, stream, true)
	}}
	switch {
	case isTunnel(r):
		s.refused("tunnel", s.servePortsTunnel(out, r, service))
	case wsstream.IsWebSocketRequest(r):
		s.servePortChannels(out, r, f)
	default:
		s.refused("SPDY", servePortsSPDY(out, r, &s.spdy, service))
	}
}

// anyNumber returns a function that counts nothing instead of nil.
func anyNumber(count func() (end func(), err error)) func() (end func(), err error) {
	if count == nil {
		return func() (func(), error) { return func() {}, nil }
	}
	return count
}

// run runs a command for a client, without the streams that were not asked for: a client may create others. A panic ends its stream
// only.
func (s *Server) run(ctx context.Context, c Command, client Client) error {
	if !c.Asked.Stdin {
		client.Stdin = nil
	}
	if !c.Asked.Stdout {
		client.Stdout = nil
	}
	if !c.Asked.Stderr {
		client.Stderr = nil
	}
	return s.report(run.Catch(func() error { return c.Run(ctx, client) }))
}

// report logs an error, which the client gets, too.
func (s *Server) report(err error) error {
	var fault *run.PanicError
	switch {
	case errors.As(err, &fault):
		s.log().Error("a stream panicked: this is a bug", "err", fault)
	case err != nil:
		s.log().Debug("a stream ended with an error, which its client got", "err", err)
	}
	return err
}
