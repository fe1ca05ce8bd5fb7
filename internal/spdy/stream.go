//go:build !libraryspdy

package spdy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/moby/spdystream/spdy"
)

const bufferSize = 128 << 10 // of a stream

type buffer [bufferSize]byte

// A Stream is one of a connection. One goroutine may read from it, and any number may write to it.
type Stream struct {
	conn   *Conn
	id     uint32
	header http.Header // nil after Accept

	// All of the following is guarded by the lock of the connection.
	more sync.Cond // state or content have changed
	open bool      // SYN_REPLY is sent, or will be before anything that is written now
	in   error     // why nothing more comes; nil while something may
	out  error     // why nothing can be written; nil while something can
	done bool      // the server does not use the stream for writing any more

	// Content that was not read is a part of buf, which begins at start and may go on at the beginning of buf. It is read from and
	// written to without the lock, both in different parts of it.
	buf      *buffer // nil while there is no content
	start, n int
	filling  bool // free bytes are in use
	taking   bool // content is in use
	drop     bool // content is not wanted
}

func newStream(c *Conn, id uint32, header http.Header, flags spdy.ControlFlags) *Stream {
	s := &Stream{conn: c, id: id, header: header}
	s.more.L = &c.mu
	if flags&flagFIN != 0 {
		s.in = io.EOF
	}
	if flags&flagOneWay != 0 {
		s.out, s.done = errOneWay, true
	}
	return s
}

// ID returns the number of the stream.
func (s *Stream) ID() uint32 { return s.id }

// Header returns the headers with which the client has opened the stream, while the function Accept of [Options] is called, and nil after
// that: they would be most of the memory that an idle stream needs.
func (s *Stream) Header() http.Header { return s.header }

// WaitOpen waits until the client learns that the stream is open: before that, an end of the stream would refuse it.
func (s *Stream) WaitOpen() error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	for !s.open {
		if s.conn.err != nil {
			return s.conn.err
		}
		if errors.Is(s.out, net.ErrClosed) { // refused
			return s.out
		}
		s.more.Wait()
	}
	return nil
}

// Read implements [io.Reader]. It returns [io.EOF] after the client has ended its side of the stream, and [ErrReset] after it has reset
// the stream.
func (s *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	content, err := s.take()
	if err != nil {
		return 0, err
	}
	n := copy(p, content)
	s.took(n)
	return n, nil
}

// WriteTo implements [io.WriterTo].
func (s *Stream) WriteTo(w io.Writer) (n int64, err error) {
	for {
		content, err := s.take()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		wrote, err := w.Write(content)
		s.took(wrote)
		n += int64(wrote)
		if err != nil {
			return n, err
		}
	}
}

// Write implements [io.Writer]. It waits while the client reads slowly.
func (s *Stream) Write(p []byte) (n int, err error) {
	if err := s.WaitOpen(); err != nil {
		return 0, err
	}
	for n < len(p) {
		part := p[n:min(n+largestContent, len(p))]
		if err := s.conn.writeData(s, part); err != nil {
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
	s.conn.mu.Lock()
	err := s.writable()
	s.done = true
	if err == nil {
		s.out = errEnded
		s.conn.replies = appendData(s.conn.replies, s.id, flagFIN, 0)
	}
	s.settle()
	s.conn.mu.Unlock()
	if err != nil {
		return err
	}
	s.conn.touch()
	return s.conn.flush()
}

// CloseRead discards what was not read and what still comes.
func (s *Stream) CloseRead() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.closeRead()
}

// Reset ends both sides of the stream.
func (s *Stream) Reset() error {
	if !s.end(spdy.Cancel) {
		return nil
	}
	return s.conn.flush()
}

// end ends both sides of the stream. It returns true if the client does not know that yet.
func (s *Stream) end(status spdy.RstStreamStatus) bool {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.reset(status)
}

// The following are called with the lock of the connection.

func (s *Stream) reset(status spdy.RstStreamStatus) bool {
	s.done = true
	reset := s.out == nil || errors.Is(s.out, errOneWay)
	if reset {
		s.out = net.ErrClosed
		s.conn.replies = appendReset(s.conn.replies, s.id, status)
	}
	s.closeRead()
	return reset
}

func (s *Stream) closeRead() {
	if s.in == nil || s.n > 0 {
		s.in = net.ErrClosed
	}
	s.drop, s.n = true, 0
	s.release()
	s.settle()
}

// settle forgets the stream when both sides have ended. A stream that the client has reset counts until the server has noticed: there
// is still work for it.
func (s *Stream) settle() {
	if s.in != nil && s.done {
		delete(s.conn.streams, s.id)
	}
	s.more.Broadcast()
	s.conn.room.Signal()
}

// writable returns why nothing can be written to the stream.
func (s *Stream) writable() error {
	if s.conn.err != nil {
		return s.conn.err
	}
	return s.out
}

// release gives the buffer back if it is empty.
func (s *Stream) release() {
	if s.buf == nil || s.n > 0 || s.filling || s.taking {
		return
	}
	s.conn.server.buffers.Put(s.buf)
	s.buf, s.start = nil, 0
	s.conn.buffers--
	s.conn.room.Signal()
}

// free returns free bytes of the buffer, nil if there are none.
func (s *Stream) free() []byte {
	if s.buf == nil {
		if s.conn.buffers == mostBuffers {
			return nil
		}
		s.buf = s.conn.server.buffer()
		s.conn.buffers++
	}
	switch end := s.start + s.n; {
	case s.n == bufferSize:
		return nil
	case end < bufferSize:
		return s.buf[end:]
	default:
		return s.buf[end-bufferSize : s.start]
	}
}

func (s *Server) buffer() *buffer {
	if b, ok := s.buffers.Get().(*buffer); ok {
		return b
	}
	return &buffer{}
}

// The following are called without the lock.

// filled adds n bytes, that are in the buffer, to the content.
func (s *Stream) filled(n int) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.filling = false
	if !s.drop {
		s.n += n
	}
	s.release()
	s.more.Broadcast()
}

// finish records that nothing more comes, and with [ErrReset] that the client wants nothing, either.
func (s *Stream) finish(why error) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.in == nil {
		s.in = why
	}
	if errors.Is(why, ErrReset) && s.out == nil {
		s.out = why
	}
	s.settle()
}

// take waits for content and returns it, at most half of the buffer: the other half can be filled until took is called.
func (s *Stream) take() ([]byte, error) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	for s.n == 0 {
		switch {
		case s.in != nil:
			return nil, s.in
		case s.conn.err != nil:
			return nil, s.conn.err
		}
		s.more.Wait()
	}
	s.taking = true
	return s.buf[s.start:min(s.start+s.n, bufferSize, s.start+bufferSize/2)], nil
}

// took removes n bytes from the content.
func (s *Stream) took(n int) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.taking = false
	if !s.drop {
		s.start = (s.start + n) % bufferSize
		s.n -= n
	}
	s.release()
	s.conn.room.Signal()
}
