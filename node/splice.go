package node

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
)

// pass passes a connection on to the runtime.
func (n *Node) pass(w http.ResponseWriter, r *http.Request, to *url.URL) {
	proxy := &httputil.ReverseProxy{
		Transport: n.streams,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = to, ""
			p.Out.Header.Del("Authorization") // the runtime needs none
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			answer(w, fmt.Errorf("error dialing backend: %w", err))
		},
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(w, r)
}

// A streamTransport opens streams of the runtime. Each connection is for one stream. The body of an upgrade is a [spliced], unless the
// runtime wants TLS.
type streamTransport struct {
	dialer *net.Dialer
	secure *http.Transport // for https
}

func newStreamTransport() *streamTransport {
	dialer := &net.Dialer{Timeout: streamDialLimit}
	return &streamTransport{dialer, &http.Transport{
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: streamDialLimit,
		DisableKeepAlives:   true,
		DisableCompression:  true,
	}}
}

// RoundTrip implements [http.RoundTripper].
func (t *streamTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.EqualFold(r.URL.Scheme, "http") {
		return t.secure.RoundTrip(r)
	}
	address := r.URL.Host
	if r.URL.Port() == "" {
		address = net.JoinHostPort(r.URL.Hostname(), "80")
	}
	conn, err := t.dialer.DialContext(r.Context(), "tcp", address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(r.Context(), func() { _ = conn.Close() })
	resp, in, err := exchange(conn, r)
	if err != nil {
		stop()
		_ = conn.Close()
		if r.Context().Err() != nil {
			err = context.Cause(r.Context())
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		stop() // the proxy closes it
		resp.Body = &spliced{conn, in}
	} else {
		resp.Body = &closing{resp.Body, conn}
	}
	return resp, nil
}

// exchange sends a request and reads the head of its answer.
func exchange(conn net.Conn, r *http.Request) (*http.Response, *bufio.Reader, error) {
	if err := r.Write(conn); err != nil {
		return nil, nil, err
	}
	in := bufio.NewReader(&io.LimitedReader{R: conn, N: maxStreamHead})
	resp, err := http.ReadResponse(in, r)
	return resp, in, err
}

// maxStreamHead bounds the head of the runtime's answer, and the text of a refusal.
const maxStreamHead = 1 << 20

// A closing body closes the connection that it came with.
type closing struct {
	io.ReadCloser
	conn net.Conn
}

func (c *closing) Close() error {
	_ = c.ReadCloser.Close()
	return c.conn.Close()
}

// A spliced is the connection after an upgrade. Its methods WriteTo and ReadFrom have the kernel move the bytes if the other side is a
// socket, too.
type spliced struct {
	conn net.Conn
	head *bufio.Reader // what came with the head of the answer
}

// Read implements [io.Reader].
func (s *spliced) Read(p []byte) (int, error) {
	if n := s.head.Buffered(); n > 0 {
		return s.head.Read(p[:min(n, len(p))])
	}
	return s.conn.Read(p)
}

// Write implements [io.Writer].
func (s *spliced) Write(p []byte) (int, error) { return s.conn.Write(p) }

// WriteTo implements [io.WriterTo].
func (s *spliced) WriteTo(w io.Writer) (int64, error) {
	head, err := s.head.Peek(s.head.Buffered())
	if err != nil {
		return 0, err
	}
	n, err := w.Write(head)
	if err != nil {
		return int64(n), err
	}
	_, _ = s.head.Discard(n)
	more, err := io.Copy(w, s.conn)
	return int64(n) + more, err
}

// ReadFrom implements [io.ReaderFrom].
func (s *spliced) ReadFrom(r io.Reader) (int64, error) { return io.Copy(s.conn, r) }

// Close closes the connection.
func (s *spliced) Close() error { return s.conn.Close() }

// CloseWrite closes the connection for writing.
func (s *spliced) CloseWrite() error {
	if c, ok := s.conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
