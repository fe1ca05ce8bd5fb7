//go:build !libraryh2

package h2

import (
	"bytes"
	"context"
	"iter"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"

	"github.com/sampan-io/sampan/internal/run"
)

// headers begins a request, or ends one with its trailers.
func (c *conn) headers(f *http2.MetaHeadersFrame) error {
	id := f.StreamID
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[id]; s != nil {
		return s.takeTrailers(f)
	}
	if c.err != nil { // nothing would end the request: the ones of the connection have been ended
		return c.err
	}
	if c.leaving {
		return nil
	}
	if id%2 == 0 || id <= c.last {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.last = id
	if f.HasPriority() && f.Priority.StreamDep == id {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	}
	// Requests whose stream was reset run on until they notice (CVE-2023-44487).
	if len(c.streams) >= int(c.srv.streams) || c.running >= 2*int(c.srv.streams) {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeRefusedStream}
	}
	s := &stream{conn: c, id: id, window: c.out.first, ended: f.StreamEnded(), declared: -1}
	s.changed.L = &c.mu
	s.receive = window{left: int64(c.srv.unreadOne), size: int64(c.srv.unreadOne)}
	r, ok := s.request(f)
	if !ok {
		return http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	}
	if c.srv.writeTimeout > 0 {
		s.writeBy = time.Now().Add(c.srv.writeTimeout)
	}
	handler := c.handler
	if f.Truncated {
		handler = http.HandlerFunc(headerTooLarge)
	}
	c.streams[id] = s
	c.running++
	if !c.group.Go(func(ctx context.Context) { s.serve(ctx, handler, r) }) {
		c.running--
		c.drop(s, errClosed)
	}
	return nil
}

// serve serves the request.
func (s *stream) serve(ctx context.Context, h http.Handler, r *http.Request) {
	ctx, cancel := context.WithCancel(ctx)
	s.begin(cancel)
	w := &response{stream: s, header: http.Header{}, head: r.Method == http.MethodHead, length: -1}
	err := run.Catch(func() error { h.ServeHTTP(w, r.WithContext(ctx)); return nil })
	cancel()
	s.finish(w, err)
}

func headerTooLarge(w http.ResponseWriter, _ *http.Request) {
	const code = http.StatusRequestHeaderFieldsTooLarge
	http.Error(w, http.StatusText(code), code)
}

// request returns the request that a header asks for. It reports false if the header is malformed (RFC 9113, section 8.1.1).
func (s *stream) request(f *http2.MetaHeadersFrame) (*http.Request, bool) {
	r := &http.Request{
		Proto: "HTTP/2.0", ProtoMajor: 2, Body: http.NoBody, Method: f.PseudoValue("method"), RequestURI: f.PseudoValue("path"),
		Host: f.PseudoValue("authority"), RemoteAddr: s.conn.remote, TLS: &s.conn.state,
	}
	scheme := f.PseudoValue("scheme")
	connect := r.Method == http.MethodConnect
	switch {
	case f.PseudoValue("protocol") != "": // RFC 8441: only for a server that said so
		return nil, false
	case connect && (r.RequestURI != "" || scheme != "" || r.Host == ""):
		return nil, false
	case !connect && (!validMethod(r.Method) || scheme != "https" && scheme != "http"):
		return nil, false
	}
	if !fields(r, f) {
		return nil, false
	}
	if r.Host == "" {
		r.Host = r.Header.Get("Host")
	}
	delete(r.Header, "Host")
	if connect {
		r.RequestURI = r.Host
		r.URL = &url.URL{Host: r.Host}
	} else {
		var err error
		if r.URL, err = url.ParseRequestURI(r.RequestURI); err != nil || r.RequestURI[0] != '/' && r.RequestURI != "*" {
			return nil, false
		}
	}
	return r, s.measure(r)
}

// measure notes how long the body is, which both the header and the frames say.
func (s *stream) measure(r *http.Request) bool {
	lengths := r.Header["Content-Length"]
	switch {
	case len(lengths) > 0:
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		if err != nil || len(lengths) > 1 || s.ended && n > 0 {
			return false
		}
		s.declared = int64(n)
		r.ContentLength = s.declared
	case !s.ended:
		r.ContentLength = -1
	}
	if !s.ended {
		s.body.Grow(int(min(max(s.declared, 0), declaredBody)))
		expects := strings.EqualFold(r.Header.Get("Expect"), "100-continue")
		delete(r.Header, "Expect")
		r.Body = &body{stream: s, trailer: r.Trailer, expects: expects}
	}
	return true
}

// fields sets the fields of the request's header. It reports false if one is not allowed in HTTP/2.
func fields(r *http.Request, f *http2.MetaHeadersFrame) bool {
	regular := f.RegularFields()
	r.Header = make(http.Header, len(regular))
	values := make([]string, len(regular)) // one allocation for all of them
	for i, field := range regular {
		name := textproto.CanonicalMIMEHeaderKey(field.Name)
		switch {
		case ofConnection(name), name == "Te" && field.Value != "trailers":
			return false
		case name == "Trailer":
			for trailer := range announced(field.Value) {
				if r.Trailer == nil {
					r.Trailer = http.Header{}
				}
				r.Trailer[trailer] = nil
			}
			continue
		}
		if all := r.Header[name]; len(all) > 0 {
			r.Header[name] = append(all, field.Value)
			continue
		}
		values[i] = field.Value
		r.Header[name] = values[i : i+1 : i+1]
	}
	if all := r.Header["Cookie"]; len(all) > 1 { // RFC 9113, section 8.2.3
		r.Header["Cookie"] = []string{strings.Join(all, "; ")}
	}
	return true
}

// ofConnection reports whether a field of HTTP/1.1 is about the connection, and not allowed in HTTP/2 (RFC 9113, section 8.2.2).
func ofConnection(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// announced returns the names of the trailers that a field Trailer announces.
func announced(list string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range strings.SplitSeq(list, ",") {
			name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))
			if httpguts.ValidTrailerHeader(name) && !yield(name) {
				return
			}
		}
	}
}

// validMethod reports whether a method is a token (RFC 9110, section 9.1).
func validMethod(m string) bool {
	return m != "" && httpguts.ValidHeaderFieldName(m)
}

// A stream is one request and its answer. All but the first two fields are guarded by the connection's mu.
type stream struct {
	conn *conn
	id   uint32

	changed sync.Cond // what the request may wait for; its L is the connection's mu
	err     error     // why the stream has ended before its time
	cancel  context.CancelFunc

	receive  window
	body     bytes.Buffer
	ended    bool  // the client has sent all
	unwanted bool  // the rest of it is dropped
	declared int64 // by Content-Length; -1: nothing
	got      int64 // of the body
	trailers http.Header
	readBy   time.Time

	window  int64 // what the client takes
	begun   bool  // we have sent the header
	closed  bool  // we have sent all
	writeBy time.Time
}

func (s *stream) begin(cancel context.CancelFunc) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.cancel = cancel
	if s.err != nil {
		cancel()
	}
}

// wait waits until something may have changed, or the deadline is over. The caller holds mu. It reports false if it is.
func (s *stream) wait(deadline time.Time) bool {
	if !deadline.IsZero() {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		t := time.AfterFunc(left, func() {
			s.conn.mu.Lock()
			defer s.conn.mu.Unlock()
			s.changed.Broadcast()
		})
		defer t.Stop()
	}
	s.changed.Wait()
	return true
}

// end notes that the client has sent all. The caller holds mu.
func (s *stream) end() error {
	if s.declared >= 0 && s.got != s.declared {
		return http2.StreamError{StreamID: s.id, Code: http2.ErrCodeProtocol}
	}
	s.ended = true
	if s.closed {
		s.conn.forget(s)
	}
	s.changed.Broadcast()
	return nil
}

// close notes that we have sent all. The caller holds mu.
func (s *stream) close() {
	s.closed = true
	if s.ended {
		s.conn.forget(s)
	}
}
