package streaming

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sampan-io/sampan/internal/lingering"
	"github.com/sampan-io/sampan/internal/spdyframes"
	"github.com/sampan-io/sampan/internal/wsframes"
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
	end    func()       // cancels the context
	linger func() error // closes the connection once, when the client has got everything, or when the context is cancelled
}

// watch returns a context that is cancelled with this cause when the connection ends (S2). When it is cancelled for
// another reason, it closes the connection. It must be called before the connection is used.
func (c *conn) watch(ctx context.Context, gone error) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	c.end = func() { cancel(gone) }
	c.linger = sync.OnceValue(func() error { return lingering.Close(ctx, c.Conn) })
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

// taking returns a response for a request. If the connection is taken out of the response, it reads and writes whole
// frames of SPDY at once, reads large messages of a WebSocket in several, and is not closed before its client has got
// everything.
func taking(w http.ResponseWriter, r *http.Request) *response {
	return &response{ResponseWriter: w, spdy: strings.HasPrefix(strings.ToUpper(r.Header.Get("Upgrade")), "SPDY/")}
}

type response struct {
	http.ResponseWriter
	spdy bool
	conn *taken // nil before the connection is taken out
}

const (
	// readBuffer has room for a frame as clients of Kubernetes send it.
	readBuffer = 64 << 10

	// largestFrame is how many bytes the content of a frame has at most. Clients of Kubernetes send no larger ones;
	// others are divided.
	largestFrame = 32 << 10

	// headBuffer has room for the head of a frame. The library reads that in two parts, and the content at once.
	headBuffer = 16
)

// Hijack implements [http.Hijacker].
func (r *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	hijacked, buffers, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c, ok := hijacked.(*conn)
	if !ok {
		return nil, nil, fmt.Errorf("a connection of the server is a %T", hijacked)
	}
	t := &taken{conn: c, out: c.Conn}
	r.conn = t
	if r.spdy {
		early, err := buffers.Peek(buffers.Reader.Buffered())
		if err != nil {
			return nil, nil, err
		}
		in := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(early)), c), readBuffer)
		frames, err := spdyframes.NewReader(in, largestFrame)
		if err != nil {
			return nil, nil, err
		}
		t.out = spdyframes.NewWriter(c.Conn)
		return t, bufio.NewReadWriter(bufio.NewReaderSize(&frameReader{frames, t}, headBuffer), buffers.Writer), nil
	}
	messages := wsframes.NewReader(buffers.Reader)
	return t, bufio.NewReadWriter(bufio.NewReaderSize(messages, headBuffer), buffers.Writer), nil
}

// close closes the connection, if it was taken out and is still open: the library leaves it open if the client creates
// no streams.
func (r *response) close() {
	if r.conn != nil {
		_ = r.conn.Close()
	}
}

// A frameReader ends a connection whose client sends frames that are wrong. The library stops to read, but does not
// close it.
type frameReader struct {
	*spdyframes.Reader
	from *taken
}

func (f *frameReader) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err != nil && !f.from.closing.Load() { // from then on, frames are discarded by two goroutines
		f.from.end()
	}
	return n, err
}

// A taken is a connection that was taken out of a response.
type taken struct {
	*conn
	out     io.Writer
	closing atomic.Bool // Close was called
}

func (t *taken) Write(p []byte) (int, error) { return t.out.Write(p) }

// Close returns when the client has closed the connection, too.
func (t *taken) Close() error {
	t.closing.Store(true)
	err := t.linger()
	t.end()
	return err
}
