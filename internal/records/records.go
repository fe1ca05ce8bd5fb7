// Package records sends the records of TLS that are written together with one system call. crypto/tls sends each one, of up to 16
// KiB, with a call of its own, and each of these wakes the reader.
package records

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

const (
	// content is how many bytes a record carries at most, by RFC 8446, section 5.1.
	content = 16 << 10

	// together is how many bytes are sent at once at most: four records, each with a head and a tag.
	together = 4 * (content + 32)
)

// A Socket is a connection below TLS that can hold writes back.
type Socket interface {
	net.Conn

	// Together calls f, and holds what is written meanwhile back, up to four records of it. The rest is sent before it
	// returns. Its error is that of f, or of a write.
	Together(f func() error) error

	// Alone calls f while no other goroutine is in Together, for which it waits. It returns the error of f.
	Alone(f func() error) error
}

// Write writes p to conn. If conn is of TLS, above a [Socket], four records of p at a time are sent together. Other goroutines may
// write meanwhile; the error of their writes may be returned here, and by later writes.
func Write(conn net.Conn, p []byte) (n int, err error) {
	socket, ok := below(conn)
	if !ok || len(p) <= content {
		return conn.Write(p)
	}
	err = socket.Together(func() (err error) {
		n, err = conn.Write(p)
		return err
	})
	if err != nil {
		return 0, err // some of it may have been sent
	}
	return n, nil
}

// CloseWrite closes conn for writing, after what other goroutines have given to [Write]: TLS bounds the time for its alert, and so
// for all that is still being sent. If conn can't be closed for writing, the error is [http.ErrNotSupported].
func CloseWrite(conn net.Conn) error {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return http.ErrNotSupported
	}
	if socket, ok := below(conn); ok {
		return socket.Alone(half.CloseWrite)
	}
	return half.CloseWrite()
}

// below returns the socket of a connection of TLS.
func below(conn net.Conn) (Socket, bool) {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil, false
	}
	socket, ok := secure.NetConn().(Socket)
	return socket, ok
}

// Held are the writes of a [Socket]. Its methods may be called by several goroutines.
type Held struct {
	send func([]byte) (int, error)
	turn sync.Mutex // held by Together and Alone

	mu      sync.Mutex
	waiting *[]byte // guarded by mu; nil while writes are sent at once
	err     error   // guarded by mu; of bytes that had waited
}

// NewHeld returns writes that are sent by a function. It is called by one goroutine at a time if Write is.
func NewHeld(send func([]byte) (int, error)) *Held { return &Held{send: send} }

// buffers are those of all connections.
var buffers = sync.Pool{New: func() any { // a cache
	b := make([]byte, 0, together)
	return &b
}}

// Together is that of a [Socket].
func (h *Held) Together(f func() error) (err error) {
	h.turn.Lock()
	defer h.turn.Unlock()
	h.hold()
	defer func() { err = cmp.Or(err, h.release()) }()
	return f()
}

// Alone is that of a [Socket].
func (h *Held) Alone(f func() error) error {
	h.turn.Lock()
	defer h.turn.Unlock()
	return f()
}

func (h *Held) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = buffers.Get().(*[]byte)
}

func (h *Held) release() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sendWaiting()
	buffers.Put(h.waiting)
	h.waiting = nil
	return h.err
}

// Write is that of a [net.Conn].
func (h *Held) Write(p []byte) (int, error) {
	h.mu.Lock()
	if h.waiting == nil {
		h.mu.Unlock()
		return h.send(p)
	}
	defer h.mu.Unlock()
	if len(*h.waiting)+len(p) > together {
		h.sendWaiting()
	}
	if h.err != nil {
		return 0, h.err
	}
	*h.waiting = append(*h.waiting, p...)
	return len(p), nil
}

// sendWaiting sends what waits. The caller holds mu.
func (h *Held) sendWaiting() {
	if h.err == nil && len(*h.waiting) > 0 {
		_, h.err = h.send(*h.waiting)
	}
	*h.waiting = (*h.waiting)[:0]
}

// NewListener returns a listener for TLS whose connections are [Socket]s.
func NewListener(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

// Accept implements [net.Listener].
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &socket{c, NewHeld(c.Write)}, nil
}

type socket struct {
	net.Conn
	*Held
}

// Write implements [net.Conn].
func (s *socket) Write(p []byte) (int, error) { return s.Held.Write(p) }

// CloseWrite closes the connection for writing, without an alert of TLS.
func (s *socket) CloseWrite() error { return CloseWrite(s.Conn) }
