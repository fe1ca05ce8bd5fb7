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
	"time"

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

	sending sync.Mutex   // held while a frame or a message is written
	taken   atomic.Bool  // HTTP is over
	renewed atomic.Int64 // when the deadline for idleness was set, in nanoseconds since 1970
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
	c.active()
	if err != nil && (c.taken.Load() || !errors.Is(err, os.ErrDeadlineExceeded)) { // HTTP interrupts its own reading by deadlines
		c.end()
	}
	return n, err
}

// Write writes a whole frame or message.
func (c *conn) Write(p []byte) (int, error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.active()
	return c.Conn.Write(p)
}

// WriteBuffers writes a whole frame that is in more than one buffer.
func (c *conn) WriteBuffers(b net.Buffers) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.active()
	_, err := b.WriteTo(c.Conn)
	return err
}

// active puts the end of an idle connection off.
func (c *conn) active() {
	if !c.taken.Load() {
		return
	}
	now := time.Now()
	if old := c.renewed.Load(); now.Sub(time.Unix(0, old)) > idleTimeout/idleSteps && c.renewed.CompareAndSwap(old, now.UnixNano()) {
		_ = c.SetReadDeadline(now.Add(idleTimeout)) // it fails if the connection is closed
	}
}

// idleSteps is how often a connection in use gets a new deadline in the time after which it would be idle.
const idleSteps = 240

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.end()
	return err
}

// A response is the answer to a request for streams. The connection that is taken out of it writes whole frames and messages at once.
type response struct {
	http.ResponseWriter
	spdy bool

	conn *conn // set by Hijack, before there are streams
}

func newResponse(w http.ResponseWriter, r *http.Request) *response {
	return &response{ResponseWriter: w, spdy: strings.HasPrefix(strings.ToUpper(r.Header.Get("Upgrade")), "SPDY/")}
}

// buffer has room for a frame as clients of Kubernetes send it, which is 32 KiB of content, and for a message of the runtime.
const buffer = 64 << 10

// Hijack implements [http.Hijacker].
func (r *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	taken, buffers, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c, ok := taken.(*conn)
	if !ok {
		return nil, nil, fmt.Errorf("a connection of the server is a %T", taken)
	}
	early, err := buffers.Peek(buffers.Reader.Buffered())
	if err != nil {
		return nil, nil, err
	}
	c.taken.Store(true)
	c.active()
	r.conn = c
	in := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(early)), c), buffer)
	if !r.spdy {
		return c, bufio.NewReadWriter(in, bufio.NewWriterSize(c, buffer)), nil
	}
	return &framed{c, spdyframes.NewWriter(c)}, bufio.NewReadWriter(in, buffers.Writer), nil
}

// A framed is a connection to which only frames are written.
type framed struct {
	net.Conn
	frames *spdyframes.Writer
}

func (f *framed) Write(p []byte) (int, error) { return f.frames.Write(p) }
