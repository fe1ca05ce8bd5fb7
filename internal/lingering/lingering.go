// Package lingering closes connections so that their peers get everything that was written before.
//
// The kernel sends what a closed socket still holds, but it throws that away when the peer sends anything to such a socket. Clients of
// streams send a ping every five seconds, so a client that reads slowly would lose the end of an output. A connection is therefore
// closed in one direction first, and in the other one when the peer has closed it.
package lingering

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"
)

// A halfCloser is a connection that can be closed for writing only.
type halfCloser interface{ CloseWrite() error }

// Close closes conn for writing, discards what still comes, and closes conn when the peer has. It does not wait longer than limit or
// after ctx is cancelled; that is no error. Connections without a method CloseWrite are closed at once.
func Close(ctx context.Context, conn net.Conn, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// TLS is not closed for writing while another goroutine writes, which may wait for the peer. The end of the socket ends both.
	stop := context.AfterFunc(ctx, func() { _ = socket(conn).Close() })
	if closeWrite(conn) == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
	if stop() {
		return conn.Close()
	}
	_ = conn.Close() // the socket is closed
	return nil
}

func closeWrite(conn net.Conn) error {
	half, ok := conn.(halfCloser)
	if !ok {
		return http.ErrNotSupported
	}
	err := half.CloseWrite()
	if _, secure := conn.(*tls.Conn); secure && err != nil {
		// TLS gives the alert five seconds. The socket has no room for it if the peer reads slowly; the end of TCP needs none.
		if half, ok = socket(conn).(halfCloser); ok {
			err = half.CloseWrite()
		}
	}
	return err
}

// socket returns the connection below TLS, or conn itself.
func socket(conn net.Conn) net.Conn {
	if secure, ok := conn.(*tls.Conn); ok {
		return secure.NetConn()
	}
	return conn
}

// Response returns w as a response whose connection, if a handler takes it over, is closed by [Close]. That connection has no method
// CloseWrite: it is closed as a whole.
func Response(ctx context.Context, w http.ResponseWriter, limit time.Duration) http.ResponseWriter {
	return &response{w, ctx, limit}
}

type response struct {
	http.ResponseWriter
	ctx   context.Context //nolint:containedctx // that of the request
	limit time.Duration
}

// Hijack implements [http.Hijacker].
func (r *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &lingering{conn, r}, buffers, nil
}

type lingering struct {
	net.Conn
	of *response
}

// Close implements [net.Conn].
func (l *lingering) Close() error { return Close(l.of.ctx, l.Conn, l.of.limit) }
