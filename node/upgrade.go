package node

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
)

// errGivenAway ends the work of a proxy whose connections have become one.
var errGivenAway = errors.New("the connection was given away")

// pass passes a connection on to the runtime. An API server in this process gets the connection to the runtime itself after the
// upgrade, so the bytes of the stream do not pass the agent.
func (n *Node) pass(w http.ResponseWriter, r *http.Request, to *url.URL) {
	proxy := &httputil.ReverseProxy{
		Transport: n.streams,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = to, ""
			p.Out.Header.Del("Authorization") // the runtime needs none
		},
		ModifyResponse: func(resp *http.Response) error {
			if conn, ok := resp.Body.(*upgraded); ok && r.Context().Value(fromAPIServer{}) != nil {
				return handOver(r.Context(), w, resp, conn)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if !errors.Is(err, errGivenAway) {
				answer(w, fmt.Errorf("error dialing backend: %w", err))
			}
		},
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(w, r)
}

// handOver answers with an upgrade, and has the API server use the connection to the runtime from then on. It returns when the API server
// has closed it, or ctx is cancelled.
func handOver(ctx context.Context, w http.ResponseWriter, resp *http.Response, conn *upgraded) error {
	taken, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer taken.Close()
	local, ok := taken.(*inprocess.Conn)
	if !ok {
		return fmt.Errorf("a connection in this process is a %T", taken)
	}
	closed := local.Replace(conn.Conn) // before the API server has the answer, and may write
	answer := *resp
	answer.Body = nil // the proxy closes it
	if err := answer.Write(local); err != nil {
		return err
	}
	if _, err := conn.head.WriteTo(local); err != nil {
		return err
	}
	if err := local.Close(); err != nil {
		return err
	}
	select {
	case <-closed:
	case <-ctx.Done():
	}
	return errGivenAway
}

// A streamTransport opens streams of the runtime. Each connection is for one stream. The body of an upgrade is an [upgraded], unless the
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
		early, err := in.Peek(in.Buffered())
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		resp.Body = &upgraded{conn, bytes.NewReader(early)}
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

// An upgraded is the connection after an upgrade.
type upgraded struct {
	net.Conn
	head *bytes.Reader // what came with the head of the answer, and was not read
}

// pieceOfStream is how many bytes are moved at once: four records of TLS. [io.Copy] would move half as much.
const pieceOfStream = 64 << 10

// Read implements [io.Reader].
func (u *upgraded) Read(p []byte) (int, error) {
	if u.head.Len() > 0 {
		return u.head.Read(p)
	}
	return u.Conn.Read(p)
}

// WriteTo implements [io.WriterTo].
func (u *upgraded) WriteTo(w io.Writer) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{u}, make([]byte, pieceOfStream))
}

// ReadFrom implements [io.ReaderFrom].
func (u *upgraded) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{u.Conn}, struct{ io.Reader }{r}, make([]byte, pieceOfStream))
}

// CloseWrite closes the connection for writing.
func (u *upgraded) CloseWrite() error {
	if c, ok := u.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return http.ErrNotSupported
}
