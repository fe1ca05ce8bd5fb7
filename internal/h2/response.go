//go:build !libraryh2

package h2

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"

	"github.com/sampan-io/sampan/internal/run"
)

// mostHeld is how much of an answer of unknown length waits for its end, which would make the length known.
const mostHeld = 4 << 10

var errEnded = errors.New("the answer has ended")

// A response is the answer to a request. It is for one goroutine at a time, but for its deadlines.
type response struct {
	stream *stream
	header http.Header
	head   bool // the request was HEAD: the answer has no body

	code    int         // 0 before the header is fixed
	fixed   http.Header // the header from then on, until it is sent
	sent    bool        // the header was
	held    []byte      // of the body, before the header is sent
	length  int64       // by Content-Length; -1: unknown
	written int64
	trailer []string // announced before the header was sent
}

// Header implements [http.ResponseWriter].
func (w *response) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter]. Codes below 200 are sent at once, and the answer's follows.
func (w *response) WriteHeader(code int) {
	switch {
	case code < 100 || code > 999:
		panic("invalid code of an answer: " + strconv.Itoa(code))
	case w.code != 0:
		return
	case code < 200:
		w.inform(code)
		return
	}
	w.code = code
	if text := w.header.Get("Content-Length"); text != "" {
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			w.header.Del("Content-Length")
		} else {
			w.length = int64(n)
		}
	}
	for _, list := range w.header["Trailer"] {
		w.trailer = slices.AppendSeq(w.trailer, announced(list))
	}
	_, typed := w.header["Content-Type"]
	if w.length >= 0 && (typed || w.length == 0) {
		w.sendHeader(w.header, w.head || (w.length == 0 || !w.mayHaveBody()) && len(w.trailer) == 0)
		return
	}
	w.fixed = w.header.Clone()
}

// inform sends a header that is not the answer's.
func (w *response) inform(code int) {
	c := w.stream.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.stream.err != nil {
		return
	}
	c.out.field(":status", strconv.Itoa(code))
	w.stream.fields(w.header)
	c.writeHeader(w.stream.id, false)
	c.flush()
}

// mayHaveBody reports whether the answer has a body, or would have one if the request were GET (RFC 9110, section 6.4.1).
func (w *response) mayHaveBody() bool {
	return w.code != http.StatusNoContent && w.code != http.StatusNotModified
}

// sendHeader sends the answer's header.
func (w *response) sendHeader(h http.Header, end bool) {
	w.sent, w.fixed = true, nil
	s := w.stream
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.err != nil {
		return
	}
	s.begun = true
	c.out.field(":status", strconv.Itoa(w.code))
	if _, dated := h["Date"]; !dated {
		c.out.field("date", c.srv.now())
	}
	s.fields(h)
	c.writeHeader(s.id, end)
	if end {
		s.close()
	}
	if h.Get("Connection") == "close" {
		c.goAway()
	}
}

// fields adds the fields of a header, apart from the ones that are not allowed in HTTP/2. The caller holds mu.
func (s *stream) fields(h http.Header) {
	out := &s.conn.out
	for name, values := range h {
		if ofConnection(name) || !httpguts.ValidHeaderFieldName(name) || strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		for _, v := range values {
			if httpguts.ValidHeaderFieldValue(v) {
				out.field(out.name(name), v)
			}
		}
	}
}

// Write implements [http.ResponseWriter]. It waits for the client where the connection is full, or its windows are.
func (w *response) Write(p []byte) (int, error) {
	if w.code == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.written += int64(len(p))
	switch {
	case !w.mayHaveBody():
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.written > w.length:
		return 0, http.ErrContentLength
	case len(p) == 0:
		return 0, nil
	}
	if !w.sent && len(w.held)+len(p) <= mostHeld {
		w.held = append(w.held, p...)
		return len(p), nil
	}
	if err := w.release(p); err != nil {
		return 0, err
	}
	if w.head {
		return len(p), nil
	}
	return w.stream.write(p, w.written == w.length && len(w.trailer) == 0)
}

// WriteString implements [io.StringWriter].
func (w *response) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// release sends the header and what is held. next is what comes after that.
func (w *response) release(next []byte) error {
	if !w.sent {
		w.guess(next)
		w.sendHeader(w.fixed, w.head)
	}
	held := w.held
	w.held = nil
	if len(held) == 0 || w.head {
		return nil
	}
	_, err := w.stream.write(held, false)
	return err
}

// guess sets the type of a body whose handler has not done so, as net/http does.
func (w *response) guess(next []byte) {
	sample := w.held
	if len(sample) == 0 {
		sample = next
	}
	if _, typed := w.fixed["Content-Type"]; !typed && len(sample) > 0 && w.fixed.Get("Content-Encoding") == "" {
		w.fixed.Set("Content-Type", http.DetectContentType(sample))
	}
}

// Flush implements [http.Flusher].
func (w *response) Flush() { _ = w.FlushError() }

// FlushError sends what was written. It does not wait until the client has it.
func (w *response) FlushError() error {
	if w.code == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if err := w.release(nil); err != nil {
		return err
	}
	c := w.stream.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushTogether()
	return w.stream.err
}

// SetWriteDeadline ends writes of the answer that wait for the client then. If that is over already, the answer ends at once.
func (w *response) SetWriteDeadline(t time.Time) error {
	s := w.stream
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.writeBy = t
	if !t.IsZero() && time.Until(t) <= 0 {
		s.late()
	}
	s.changed.Broadcast()
	return nil
}

// EnableFullDuplex does nothing: every stream of HTTP/2 can be read while it is written.
func (*response) EnableFullDuplex() error { return nil }

// late ends a stream whose client did not read in time. The caller holds mu.
func (s *stream) late() {
	if s.err == nil && !s.closed {
		s.conn.reset(s.id, http2.ErrCodeInternal)
		s.err = os.ErrDeadlineExceeded
		s.conn.flush()
	}
}

// write sends a part of the answer's body, and ends the answer after it if end is set.
func (s *stream) write(p []byte, end bool) (n int, err error) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case s.err != nil:
			return n, s.err
		case s.closed:
			return n, errEnded
		case len(c.out.pending) >= mostPending:
			if c.out.sending {
				c.out.wait(&s.changed)
				if !s.wait(s.writeBy) {
					s.late()
				}
			} else {
				c.flush()
			}
			continue
		}
		size := int(min(int64(len(p)-n), int64(c.out.frame), max(s.window, 0), max(c.out.window, 0)))
		if size == 0 && n < len(p) {
			s.widened()
			continue
		}
		last := end && n+size == len(p)
		_ = c.frames.WriteData(s.id, last, p[n:n+size])
		n += size
		s.window -= int64(size)
		c.out.window -= int64(size)
		if last {
			s.close()
		}
		if len(c.out.pending) >= enough {
			c.flush()
		}
		if n == len(p) {
			return n, nil
		}
	}
}

// widened waits until the client takes more. The caller holds mu.
func (s *stream) widened() {
	c := s.conn
	if len(c.out.pending) > 0 && !c.out.sending { // it may wait for that
		c.flush()
		return
	}
	if c.out.window <= 0 {
		c.out.wait(&s.changed)
	}
	if !s.wait(s.writeBy) {
		s.late()
	}
}

// finish ends an answer whose handler has returned, or panicked, which fault says.
func (s *stream) finish(w *response, fault error) {
	if fault == nil {
		w.complete()
	} else if !errors.Is(fault, http.ErrAbortHandler) {
		s.conn.logPanic(fault)
	}
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.empty()
	if s.err == nil {
		switch {
		case !s.closed:
			c.reset(s.id, http2.ErrCodeInternal)
		case !s.ended:
			s.linger()
		}
	}
	c.flushTogether()
	if c.running--; c.running == 0 {
		c.idle = time.Now()
	}
	c.endIfLast()
}

// linger ends a stream that is answered before the client has sent all, which is not wanted (RFC 9113, section 8.1). Some clients lose
// the answer if the reset comes with it, so it comes later. The caller holds mu.
func (s *stream) linger() {
	s.unwanted = true
	c := s.conn
	time.AfterFunc(lingering, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.streams[s.id] == s {
			c.reset(s.id, http2.ErrCodeNo)
			c.sendElsewhere()
		}
	})
}

func (c *conn) logPanic(err error) {
	var fault *run.PanicError
	if errors.As(err, &fault) {
		c.srv.log.Printf("http2: %v while serving %s\n%s", err, c.remote, fault.Stack)
	}
}

// complete sends what is left of an answer.
func (w *response) complete() {
	if w.code == 0 {
		w.WriteHeader(http.StatusOK)
	}
	trailers := w.trailers()
	if !w.sent {
		if w.mayHaveBody() && w.length < 0 && (!w.head || len(w.held) > 0) {
			w.fixed.Set("Content-Length", strconv.Itoa(len(w.held)))
		}
		w.guess(nil)
		w.sendHeader(w.fixed, w.head || len(w.held) == 0 && trailers == nil)
	}
	held := w.held
	w.held = nil
	if w.head {
		return
	}
	if trailers == nil {
		_, _ = w.stream.write(held, true)
		return
	}
	if _, err := w.stream.write(held, false); err != nil {
		return
	}
	s := w.stream
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.err == nil && !s.closed {
		s.fields(trailers)
		s.conn.writeHeader(s.id, true)
		s.close()
	}
}

// trailers returns the fields that come after the body, or nil.
func (w *response) trailers() http.Header {
	var t http.Header
	set := func(name string, values []string) {
		if t == nil {
			t = http.Header{}
		}
		t[name] = values
	}
	for _, name := range w.trailer {
		if values, ok := w.header[name]; ok {
			set(name, values)
		}
	}
	for name, values := range w.header {
		if bare, ok := strings.CutPrefix(name, http.TrailerPrefix); ok && httpguts.ValidTrailerHeader(bare) {
			set(bare, values)
		}
	}
	return t
}
