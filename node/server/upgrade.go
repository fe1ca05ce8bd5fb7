package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/sampan-io/sampan/internal/inprocess"
	"github.com/sampan-io/sampan/internal/lingering"
	"github.com/sampan-io/sampan/internal/upgrade"
)

// errTaken ends the work of a proxy that has no connection to answer on.
var errTaken = errors.New("the connection was taken over")

// pass passes a connection on to the runtime. An API server in this process gets the connection to the runtime itself after the
// upgrade, so the bytes of the stream do not pass the agent.
func (k *Server) pass(w http.ResponseWriter, r *http.Request, to *url.URL) {
	proxy := &httputil.ReverseProxy{
		Transport: k.streams,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = to, ""
			p.Out.Header.Del("Authorization") // the runtime needs none
		},
		ModifyResponse: func(resp *http.Response) error {
			if conn, ok := resp.Body.(*runtimeConn); ok && r.Context().Value(fromAPIServer{}) != nil {
				return k.handOver(r.Context(), w, resp, conn)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if !errors.Is(err, errTaken) {
				answer(w, fmt.Errorf("error dialing backend: %w", err))
			}
		},
		ErrorLog: slog.NewLogLogger(k.opts.Log.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(lingering.Response(r.Context(), w), r)
}

// handOver answers with an upgrade, and has the API server use the connection to the runtime from then on. It returns when the API server
// has closed it, or ctx is cancelled. After an error the API server has no answer: its connection is closed.
func (k *Server) handOver(ctx context.Context, w http.ResponseWriter, resp *http.Response, conn *runtimeConn) error {
	taken, buffers, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer taken.Close()
	if err := replaceConn(ctx, taken, buffers.Reader, resp, conn); err != nil && ctx.Err() == nil {
		k.opts.Log.Warn("connection to the runtime not passed on to the API server", "err", err)
	}
	return errTaken
}

// replaceConn is handOver with a connection that was taken over; in has what was read of it and not used.
func replaceConn(ctx context.Context, taken net.Conn, in *bufio.Reader, resp *http.Response, conn *runtimeConn) error {
	local, ok := taken.(*inprocess.Conn)
	if !ok {
		return fmt.Errorf("a connection in this process is a %T", taken)
	}
	if early := in.Buffered(); early > 0 { // it would be lost
		return fmt.Errorf("the client sent %d bytes before it had the answer to its upgrade", early)
	}
	closed := local.Replace(conn.socket) // before the API server has the answer, and may write
	answer := *resp
	answer.Body = nil // the proxy closes it
	if err := answer.Write(local); err != nil {
		return err
	}
	if _, err := conn.Early.WriteTo(local); err != nil {
		return err
	}
	if err := local.Close(); err != nil {
		return err
	}
	select {
	case <-closed:
	case <-ctx.Done():
	}
	return nil
}

// A streamTransport opens streams of the runtime. Each connection is for one stream. The body of an upgrade is a [runtimeConn], unless
// the runtime wants TLS.
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
		early, err := in.Peek(in.Buffered())
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		resp.Body = &runtimeConn{&upgrade.Conn{ReadWriteCloser: conn, Early: bytes.NewReader(early)}, conn}
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

// A runtimeConn is the connection to the runtime after an upgrade.
type runtimeConn struct {
	*upgrade.Conn
	socket net.Conn // of the Conn
}
