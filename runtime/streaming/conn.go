package streaming

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/sampan-io/sampan/internal/spdyframes"
)

// watchingListener accepts connections that report their end. HTTP's own report ends with the upgrade of a connection.
type watchingListener struct{ net.Listener }

func (l *watchingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// A conn is a connection of a client. Both protocols read from it all the time, so its end is noticed.
type conn struct {
	net.Conn
	end func() // cancels the context; set by watch, before the connection is used
}

// watch returns a context that is cancelled with this cause when the connection ends (S2). When it is cancelled for
// another reason, it closes the connection.
func (c *conn) watch(ctx context.Context, gone error) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	c.end = func() { cancel(gone) }
	context.AfterFunc(ctx, func() { _ = c.Conn.Close() })
	return ctx
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // HTTP interrupts its own reading by deadlines
		c.end()
	}
	return n, err
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.end()
	return err
}

// framing returns the response for a request that may ask for SPDY. The connection that is then taken out of the response reads
// and writes whole frames at once, if it can.
func framing(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	if !strings.HasPrefix(strings.ToUpper(r.Header.Get("Upgrade")), "SPDY/") {
		return w
	}
	return framedResponse{w}
}

type framedResponse struct{ http.ResponseWriter }

// readBuffer has room for a frame as clients of Kubernetes send it, which is 32 KiB of content.
const readBuffer = 64 << 10

// Hijack implements [http.Hijacker].
func (f framedResponse) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	taken, buffers, err := http.NewResponseController(f.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, err := buffers.Peek(buffers.Reader.Buffered())
	if err != nil {
		return nil, nil, err
	}
	out := io.Writer(taken)
	if c, ok := taken.(*conn); ok {
		out = c.Conn
	}
	in := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(early)), taken), readBuffer)
	return &framed{taken, spdyframes.NewWriter(out)}, bufio.NewReadWriter(in, buffers.Writer), nil
}

// A framed is a connection to which only frames are written.
type framed struct {
	net.Conn
	frames *spdyframes.Writer
}

func (f *framed) Write(p []byte) (int, error) { return f.frames.Write(p) }
