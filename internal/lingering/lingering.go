// Package lingering closes connections so that their peers get everything that was written before.
//
// The kernel sends what a closed socket still holds, but it throws that away when the peer sends anything to such a
// socket. Clients of streams send a ping every five seconds, so a client that reads slowly would lose the end of an
// output. A connection is therefore closed in one direction first, and in the other one when the peer has closed it.
package lingering

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/sampan-io/sampan/internal/records"
)

// Limit is how long a peer may take to read the end of a stream, and how long a stream may be idle. It is the default
// of streamingConnectionIdleTimeout of upstream's kubelet.
const Limit = 4 * time.Hour

// Close closes conn for writing, discards the bytes that still come, and closes conn when the peer has closed it. It
// waits for [Limit] at most, and until ctx is cancelled; neither is an error. A connection without a method CloseWrite
// is closed at once.
func Close(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	// TLS is not closed for writing while another goroutine writes, which may wait for the peer. The end of the socket
	// ends both.
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
	err := records.CloseWrite(conn)
	if _, secure := conn.(*tls.Conn); secure && err != nil {
		// TLS gives the alert five seconds. The socket has no room for it if the peer reads slowly; the end of TCP
		// needs none.
		err = records.CloseWrite(socket(conn))
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

// Response returns w as a response whose connection, if a handler takes it over, is closed by [Close]. That connection
// has no method CloseWrite: it is closed as a whole.
func Response(ctx context.Context, w http.ResponseWriter) http.ResponseWriter {
	return &response{w, ctx}
}

type response struct {
	http.ResponseWriter
	ctx context.Context //nolint:containedctx // that of the request
}

// Hijack implements [http.Hijacker].
func (r *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &lingering{conn, r.ctx}, buffers, nil
}

type lingering struct {
	net.Conn
	ctx context.Context //nolint:containedctx // that of the request
}

// Write implements [net.Conn].
func (l *lingering) Write(p []byte) (int, error) { return records.Write(l.Conn, p) }

// Close implements [net.Conn].
func (l *lingering) Close() error { return Close(l.ctx, l.Conn) }
