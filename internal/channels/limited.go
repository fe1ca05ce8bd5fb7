package channels

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"time"
)

// A limitedResponse is a response whose connection, if it is taken over, is a [limitedConn].
type limitedResponse struct {
	http.ResponseWriter
	conn *limitedConn // nil before that
}

// Hijack implements [http.Hijacker].
func (r *limitedResponse) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	r.conn = &limitedConn{Conn: conn}
	return r.conn, buffers, nil
}

// A limitedConn is a connection with a time after which nothing is written. No deadline is later.
type limitedConn struct {
	net.Conn
	mu         sync.Mutex
	last       time.Time // guarded by mu; zero means that there is none
	writeUntil time.Time // guarded by mu; the deadline; zero means none
}

func (c *limitedConn) limit(last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = last
	_ = c.setWriteDeadline(c.writeUntil)
}

// SetDeadline implements [net.Conn].
func (c *limitedConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetWriteDeadline implements [net.Conn].
func (c *limitedConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setWriteDeadline(t)
}

// setWriteDeadline is SetWriteDeadline with mu held.
func (c *limitedConn) setWriteDeadline(t time.Time) error {
	if !c.last.IsZero() && (t.IsZero() || t.After(c.last)) {
		t = c.last
	}
	c.writeUntil = t
	return c.Conn.SetWriteDeadline(t)
}
