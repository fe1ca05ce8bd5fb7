package inprocess

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A Conn is one end of a connection of a [Listener]. It is a socket, until the other end calls Replace.
type Conn struct {
	net.Conn

	own, others *replacement
	drained     atomic.Bool // the socket has been read to its end, so the replacement is next
}

// A replacement is the connection that an end uses instead of its socket.
type replacement struct {
	mu     sync.Mutex
	conn   net.Conn      // guarded by mu; nil until it is replaced
	closed chan struct{} // closed with the end; guarded by mu for closing
	over   bool          // guarded by mu; the end is closed
}

func (r *replacement) get() net.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conn
}

// Replace gives a connection to the other end, so that its bytes need not be copied by this one. The other end first reads what was
// written to c until c is closed, and then what comes from conn. It writes to conn from the call on, so it must not write while it
// waits for what this end writes before it closes c: as a client that waits for the answer to an upgrade.
//
// The other end owns conn from then on. The channel is closed when that end is.
func (c *Conn) Replace(conn net.Conn) <-chan struct{} {
	r := c.others
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn = conn; r.over {
		_ = conn.Close()
	}
	return r.closed
}

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) {
	if !c.drained.Load() {
		n, err := c.Conn.Read(p)
		if !errors.Is(err, io.EOF) || c.own.get() == nil {
			return n, err
		}
		c.drained.Store(true)
	}
	return c.own.get().Read(p)
}

// Write implements [net.Conn].
func (c *Conn) Write(p []byte) (int, error) {
	if conn := c.own.get(); conn != nil {
		return conn.Write(p)
	}
	return c.Conn.Write(p)
}

// CloseWrite closes the connection for writing.
func (c *Conn) CloseWrite() error {
	conn := c.own.get()
	if conn == nil {
		conn = c.Conn
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}

// Close implements [net.Conn].
func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.own.mu.Lock()
	defer c.own.mu.Unlock()
	if !c.own.over {
		c.own.over = true
		close(c.own.closed)
	}
	if c.own.conn != nil {
		err = errors.Join(err, c.own.conn.Close())
	}
	return err
}

// SetDeadline implements [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	return c.onBoth(func(conn net.Conn) error { return conn.SetDeadline(t) })
}

// SetReadDeadline implements [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.onBoth(func(conn net.Conn) error { return conn.SetReadDeadline(t) })
}

// SetWriteDeadline implements [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.onBoth(func(conn net.Conn) error { return conn.SetWriteDeadline(t) })
}

func (c *Conn) onBoth(set func(net.Conn) error) error {
	err := set(c.Conn)
	if conn := c.own.get(); conn != nil {
		err = errors.Join(err, set(conn))
	}
	return err
}
