package streams

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdy"
	"github.com/sampan-io/sampan/internal/upgrade"
)

// mostTurns is how many connections of one client may have bytes of the pod in memory at a time. One of them is written to the client
// then, because a connection to a client is written to by one goroutine at a time, and others are read meanwhile.
const mostTurns = 4

// A forwarder forwards connections to a pod for one client.
//
// A client may have hundreds of them, and most are idle: what they cost is memory of the kernel and two small goroutines each. So a
// connection has a buffer only while bytes of the pod are in it, and at most mostTurns connections of a client have one. The others
// leave their bytes in the kernel, even if the client reads slowly or not at all.
type forwarder struct {
	server *Server
	ports  Ports
	turns  chan struct{} // has an element for each buffer in use
}

func (s *Server) forwarder(p Ports) *forwarder {
	p.Begin = anyNumber(p.Begin)
	return &forwarder{server: s, ports: p, turns: make(chan struct{}, mostTurns)}
}

// forward connects a stream to a port, and copies until both have ended. halfClose says that the client learns that the pod sends
// nothing any more while it still sends itself; otherwise that is the end of the stream. What comes from the client is copied in a
// group, until the stream is closed.
func (f *forwarder) forward(ctx context.Context, g *run.Group, port int32, stream io.ReadWriteCloser, halfClose bool) error {
	return f.server.report(run.Catch(func() error {
		end, err := f.ports.Begin()
		if err != nil {
			return err
		}
		defer end()
		conn, err := f.ports.Dial(ctx, port)
		if err != nil {
			return err
		}
		return f.relay(ctx, g, conn, stream, halfClose)
	}))
}

// relay copies in both directions until both have ended, the client resets the stream, or ctx is cancelled.
func (f *forwarder) relay(ctx context.Context, g *run.Group, conn *net.TCPConn, stream io.ReadWriteCloser, halfClose bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	up := make(chan error, 1)
	g.Go(func(context.Context) {
		err := copyTo(conn, stream)
		if errors.Is(err, spdy.ErrReset) { // the client wants nothing of the pod, either, which may never send anything
			cancel()
		}
		up <- err
	})
	err := f.copyFrom(ctx, conn, stream)
	if err != nil || !halfClose {
		return ended(ctx, err)
	}
	if err := stream.Close(); err != nil {
		return ended(ctx, err)
	}
	select {
	case err := <-up:
		return ended(ctx, err)
	case <-ctx.Done():
		return nil
	}
}

// plainWriter is a connection without the method by which [io.Copy] would copy in the kernel: the other side is a stream.
type plainWriter struct{ io.Writer }

// copyTo copies what the client sends to the pod, and the end of it.
func copyTo(conn *net.TCPConn, stream io.Reader) error {
	_, err := io.Copy(plainWriter{conn}, stream)
	if err == nil {
		err = conn.CloseWrite()
	}
	return err
}

// ended returns nil instead of err if the client is gone, which ends a forwarded connection in the normal way.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// copyFrom copies what the pod sends to the client, until the pod ends that.
func (f *forwarder) copyFrom(ctx context.Context, conn *net.TCPConn, stream io.Writer) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	from := &source{forwarder: f, ctx: ctx, conn: conn, raw: raw}
	from.read = from.tryRead
	for {
		if err := from.passPiece(stream); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

type piece [upgrade.Frame]byte

// A source is the connection to a pod, as far as that sends.
type source struct {
	*forwarder
	ctx  context.Context //nolint:containedctx // that of one copy; raw takes no arguments for read
	conn *net.TCPConn
	raw  syscall.RawConn
	read func(fd uintptr) bool // tryRead, made once

	piece *piece // nil without a turn
	n     int    // bytes in it
	err   error  // instead of bytes
}

// passPiece waits until the pod has sent something, and writes it to the client.
func (s *source) passPiece(to io.Writer) error {
	defer s.giveBack()
	if err := s.raw.Read(s.read); err != nil {
		return err
	}
	if s.err != nil {
		return s.err
	}
	_, err := to.Write(s.piece[:s.n])
	return err
}

// tryRead waits for a turn, and reads if there is something to read. It returns false if not: raw calls it again when there is. While
// it waits, the connection cannot be closed, so it returns when the context ends.
func (s *source) tryRead(fd uintptr) (done bool) {
	select {
	case s.turns <- struct{}{}:
		s.piece = s.server.piece()
	case <-s.ctx.Done():
		s.err = context.Cause(s.ctx)
		return true
	}
	for {
		n, err := unix.Read(int(fd), s.piece[:])
		switch {
		case err == nil && n == 0:
			s.err = io.EOF
		case err == nil:
			s.n = n
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			s.giveBack()
			return false
		default: // as the connection's own method has it
			s.err = &net.OpError{
				Op: "read", Net: "tcp", Source: s.conn.LocalAddr(), Addr: s.conn.RemoteAddr(), Err: os.NewSyscallError("read", err),
			}
		}
		return true
	}
}

// giveBack ends the turn, if the source has one.
func (s *source) giveBack() {
	if s.piece != nil {
		s.server.pieces.Put(s.piece)
		s.piece = nil
		<-s.turns
	}
}

func (s *Server) piece() *piece {
	if p, ok := s.pieces.Get().(*piece); ok {
		return p
	}
	return &piece{}
}
