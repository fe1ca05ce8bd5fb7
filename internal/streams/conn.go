package streams

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/sampan-io/sampan/internal/lingering"
)

// take returns a response and a request for a stream. The context of the request is cancelled with the cause of the server when the
// client has disconnected, and then the connection is closed. end closes the connection, if it was taken out of the response and is
// still open.
func (s *Server) take(w http.ResponseWriter, r *http.Request) (*response, *http.Request, func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	out := &response{ResponseWriter: w, ctx: ctx, gone: func() { cancel(s.Gone) }}
	return out, r.WithContext(ctx), func() {
		if out.conn != nil {
			_ = out.conn.Close()
		}
		cancel(nil)
	}
}

// A response is one for a stream. If its connection is taken out, that is not closed before its client has got everything.
type response struct {
	http.ResponseWriter
	ctx  context.Context //nolint:containedctx // that of the request
	gone func()          // cancels it
	conn *taken          // nil before the connection is taken out
}

// Hijack implements [http.Hijacker].
func (r *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	hijacked, buffers, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	t := &taken{Conn: hijacked, gone: r.gone}
	t.linger = sync.OnceValue(func() error { return lingering.Close(r.ctx, hijacked) })
	context.AfterFunc(r.ctx, func() { _ = hijacked.Close() })
	r.conn = t
	early, err := buffers.Peek(buffers.Reader.Buffered())
	if err != nil {
		return nil, nil, err
	}
	in := bufio.NewReader(io.MultiReader(bytes.NewReader(bytes.Clone(early)), t)) // large reads pass it
	return t, bufio.NewReadWriter(in, buffers.Writer), nil
}

// A taken is a connection that was taken out of a response. Both protocols read from it all the time, so its end is noticed.
type taken struct {
	net.Conn
	gone   func()       // cancels the context
	linger func() error // closes the connection once, when the client has got everything, or when the context is cancelled
}

func (t *taken) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if err != nil {
		t.gone()
	}
	return n, err
}

// Close returns when the client has closed the connection, too.
func (t *taken) Close() error {
	err := t.linger()
	t.gone()
	return err
}
