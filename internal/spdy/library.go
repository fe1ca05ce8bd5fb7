//go:build libraryspdy

package spdy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/moby/spdystream"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdyframes"
)

// A Server has what its connections share: nothing. The zero value can be used.
//
// This build serves connections by moby/spdystream, with the readers and writers of package spdyframes around it. It is a way out if
// the implementation of this package has a defect. Y1 does not hold in it: a stream has one frame that was not read, and a
// connection 250.
type Server struct{}

// A Conn is a connection to a client.
type Conn struct {
	library *spdystream.Connection
	conn    *framed
	o       Options
	ended   chan struct{} // closed when nothing more comes
	end     sync.Once

	accepting sync.Mutex // the library opens streams on several goroutines
	copies    *run.Group // discard what is not wanted

	mu      sync.Mutex
	closing bool                 // guarded by mu
	streams map[*Stream]struct{} // guarded by mu
}

// framed is a connection of which the library reads and writes whole frames.
type framed struct {
	net.Conn
	frames *spdyframes.Reader
	whole  *spdyframes.Writer
	failed func()
	err    error // of reading; used after failed was called
}

// Read implements [net.Conn].
func (f *framed) Read(p []byte) (int, error) {
	n, err := f.frames.Read(p)
	if err != nil && f.err == nil {
		f.err = err
		f.failed()
	}
	return n, err
}

// Write implements [net.Conn].
func (f *framed) Write(p []byte) (int, error) { return f.whole.Write(p) }

// New returns a connection to a client, whose bytes come from in. The methods of conn are called concurrently.
func (*Server) New(conn net.Conn, in io.Reader, o Options) (*Conn, error) {
	frames, err := spdyframes.NewReader(bufio.NewReader(in), largestContent)
	if err != nil {
		return nil, err
	}
	c := &Conn{o: o, ended: make(chan struct{}), streams: map[*Stream]struct{}{}}
	c.conn = &framed{Conn: conn, frames: frames, whole: spdyframes.NewWriter(conn), failed: c.finish}
	c.library, err = spdystream.NewConnection(c.conn, true)
	return c, err
}

// Done returns a channel that is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.ended }

func (c *Conn) finish() { c.end.Do(func() { close(c.ended) }) }

// Run serves the connection until it ends: its client ends it, sends a wrong frame or does nothing for too long, or ctx is cancelled,
// or [Conn.Close] is called. Then the connection is closed. The error says why, unless the client has ended it or Close was called.
func (c *Conn) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, c.abort)()
	c.copies = run.NewGroup(context.WithoutCancel(ctx), 0)
	c.library.SetIdleTimeout(c.o.Idle)
	c.copies.Go(func(context.Context) { // it ends when all that has come was read
		c.library.Serve(c.accept)
		c.finish()
	})
	<-c.ended
	c.mu.Lock()
	closing := c.closing
	c.mu.Unlock()
	if !closing {
		c.abort()
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case closing, c.conn.err == nil, errors.Is(c.conn.err, io.EOF), errors.Is(c.conn.err, net.ErrClosed):
		return nil
	}
	return c.conn.err
}

// abort closes the connection at once, or stops Close from waiting for the client.
func (c *Conn) abort() {
	_ = c.conn.SetDeadline(time.Unix(1, 0))
	_ = c.conn.Close()
}

// Close resets all streams that are still written to and closes the connection. The client gets everything that was written before.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closing = true
	var all []*Stream
	for s := range c.streams {
		all = append(all, s)
	}
	c.mu.Unlock()
	for _, s := range all {
		_ = s.Reset()
	}
	err := c.library.CloseWait()
	_ = c.conn.Close() // a client that has gone away is not waited for
	return err
}

// accept opens a stream for the client, or refuses it.
func (c *Conn) accept(library *spdystream.Stream) {
	c.accepting.Lock()
	defer c.accepting.Unlock()
	s := &Stream{conn: c, library: library, opened: make(chan struct{}), oneWay: library.IsFinished()}
	c.mu.Lock()
	refused := c.closing || len(c.streams) >= mostStreams
	if !refused {
		c.streams[s] = struct{}{}
	}
	c.mu.Unlock()
	if refused || c.o.Accept(s) != nil {
		_ = library.Refuse()
		_ = library.Reset()
		s.settle(true, true)
		return
	}
	if library.SendReply(http.Header{}, false) == nil {
		close(s.opened)
	}
}

// A Stream is one of a connection. One goroutine may read from it, and any number may write to it.
type Stream struct {
	conn    *Conn
	library *spdystream.Stream
	opened  chan struct{} // closed when the client learns that the stream is open

	oneWay bool // the server does not write

	mu      sync.Mutex
	in, out bool  // guarded by mu; the side has ended
	ours    error // guarded by mu; why the server does not write any more; net.ErrClosed after Reset
}

// ID returns the number of the stream.
func (s *Stream) ID() uint32 { return s.library.Identifier() }

// Header returns the headers with which the client has opened the stream.
func (s *Stream) Header() http.Header { return s.library.Headers() }

// WaitOpen waits until the client learns that the stream is open: before that, an end of the stream would refuse it.
func (s *Stream) WaitOpen() error {
	select {
	case <-s.opened:
		return nil
	case <-s.conn.ended:
	}
	select {
	case <-s.opened:
		return nil
	default:
		return net.ErrClosed
	}
}

// Read implements [io.Reader]. It returns [io.EOF] after the client has ended its side of the stream, and [ErrReset] after it has reset
// the stream.
func (s *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := s.library.Read(p)
	if errors.Is(err, io.EOF) {
		s.settle(true, false)
		switch ours := s.cause(); {
		case errors.Is(ours, net.ErrClosed):
			return n, ours
		case ours == nil && !s.oneWay && s.library.IsFinished():
			return n, ErrReset
		}
	}
	return n, err
}

// WriteTo implements [io.WriterTo].
func (s *Stream) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{s}) }

// Write implements [io.Writer]. It waits while the client reads slowly.
func (s *Stream) Write(p []byte) (n int, err error) {
	if err := s.WaitOpen(); err != nil {
		return 0, err
	}
	for n < len(p) {
		if err := s.writable(); err != nil {
			return n, err
		}
		part := p[n:min(n+largestContent, len(p))]
		if _, err := s.library.Write(part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// Close ends the server's side of the stream. The client's side can still be read.
func (s *Stream) Close() error {
	if err := s.WaitOpen(); err != nil {
		return err
	}
	err := s.writable()
	s.finish(errEnded)
	s.settle(false, true)
	if err != nil {
		return err
	}
	return s.library.Close()
}

// CloseRead discards what was not read and what still comes.
func (s *Stream) CloseRead() {
	s.conn.copies.Go(func(context.Context) { _, _ = s.WriteTo(io.Discard) })
}

// Reset ends both sides of the stream.
func (s *Stream) Reset() error {
	s.finish(net.ErrClosed)
	s.settle(true, true)
	return s.library.Reset()
}

// finish records why the server does not write any more.
func (s *Stream) finish(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ours == nil || errors.Is(why, net.ErrClosed) {
		s.ours = why
	}
}

func (s *Stream) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ours
}

// writable returns why nothing can be written to the stream.
func (s *Stream) writable() error {
	switch ours := s.cause(); {
	case ours != nil:
		return ours
	case s.oneWay:
		return errOneWay
	case s.library.IsFinished():
		return ErrReset
	}
	return nil
}

// settle records which sides have ended. A stream whose sides have both ended does not count any more.
func (s *Stream) settle(in, out bool) {
	s.mu.Lock()
	s.in, s.out = s.in || in, s.out || out
	over := s.in && s.out
	s.mu.Unlock()
	if over {
		s.conn.mu.Lock()
		delete(s.conn.streams, s)
		s.conn.mu.Unlock()
	}
}
