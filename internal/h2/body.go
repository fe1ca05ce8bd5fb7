//go:build !libraryh2

package h2

import (
	"bytes"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"time"

	"golang.org/x/net/http2"
)

const (
	declaredBody = 4 << 10  // bytes of a body for which there is room before they come
	keptBody     = 16 << 10 // bytes of room that an empty body keeps
)

// data takes a part of a body.
func (c *conn) data(f *http2.DataFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID > c.last && !c.leaving {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	n := int(f.Length) // with its padding
	if !c.receive.take(int64(n)) {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	s := c.streams[f.StreamID]
	if s == nil || s.ended {
		c.credit(n)
		if s == nil && f.StreamID > c.last {
			return nil
		}
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeStreamClosed}
	}
	data := f.Data()
	s.got += int64(len(data))
	wrong := http2.ErrCodeNo
	switch {
	case !s.receive.take(int64(n)):
		wrong = http2.ErrCodeFlowControl
	case s.declared >= 0 && s.got > s.declared:
		wrong = http2.ErrCodeProtocol
	}
	if wrong != http2.ErrCodeNo {
		c.credit(n)
		return http2.StreamError{StreamID: s.id, Code: wrong}
	}
	if s.unwanted {
		c.credit(n)
	} else {
		_, _ = s.body.Write(data)
		s.credit(n - len(data))
	}
	if f.StreamEnded() {
		return s.end()
	}
	s.changed.Broadcast()
	return nil
}

// credit gives the client back n bytes of both windows. The caller holds mu.
func (s *stream) credit(n int) {
	s.conn.credit(n)
	if more := s.receive.give(int64(n)); more > 0 && !s.ended && s.err == nil {
		_ = s.conn.frames.WriteWindowUpdate(s.id, more)
	}
}

// empty drops what nothing has read of the body. The caller holds mu.
func (s *stream) empty() {
	s.credit(s.body.Len())
	s.body = bytes.Buffer{}
}

// takeTrailers ends a body with the fields that come after it. The caller holds mu.
func (s *stream) takeTrailers(f *http2.MetaHeadersFrame) error {
	if s.ended {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeStreamClosed}
	}
	if !f.StreamEnded() || len(f.PseudoFields()) > 0 {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
	}
	s.trailers = http.Header{}
	for _, field := range f.RegularFields() {
		s.trailers.Add(textproto.CanonicalMIMEHeaderKey(field.Name), field.Value)
	}
	return s.end()
}

// A body is that of a request. Its methods are for one goroutine at a time.
type body struct {
	stream  *stream
	trailer http.Header // of the request; the announced ones are set at the end of the body
	expects bool        // the client waits until it is asked for the body
	over    bool        // it was closed
}

// Read implements [io.Reader]. It waits for the client, at most until the deadline.
func (b *body) Read(p []byte) (int, error) {
	s := b.stream
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case b.over:
			return 0, http.ErrBodyReadAfterClose
		case s.body.Len() > 0:
			n, _ := s.body.Read(p)
			s.credit(n)
			if s.body.Len() == 0 && s.body.Cap() > keptBody { // the request may run for long
				s.body = bytes.Buffer{}
			}
			if len(c.out.pending) > 0 {
				c.flush()
			}
			return n, nil
		case s.err != nil:
			return 0, s.err
		case s.ended:
			for name := range b.trailer {
				b.trailer[name] = s.trailers[name]
			}
			return 0, io.EOF
		case len(p) == 0:
			return 0, nil
		}
		if b.expects || len(c.out.pending) > 0 && !c.out.sending { // the client may wait for that
			b.ask()
			continue
		}
		if !s.wait(s.readBy) {
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// ask requests a body for which the client waits to be asked, unless the header of the answer was sent. The caller holds mu.
func (b *body) ask() {
	expects := b.expects && !b.stream.begun
	b.expects = false
	if expects {
		b.stream.conn.out.field(":status", "100")
		b.stream.conn.writeHeader(b.stream.id, false)
	}
	b.stream.conn.flush()
}

// Close implements [io.Closer]. What the client has sent and sends is dropped.
func (b *body) Close() error {
	s := b.stream
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	b.over = true
	s.empty()
	return nil
}

// SetReadDeadline ends reads of the request's body that wait then.
func (w *response) SetReadDeadline(t time.Time) error {
	s := w.stream
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.readBy = t
	s.changed.Broadcast()
	return nil
}
