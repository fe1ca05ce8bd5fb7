package streaming

import (
	"context"
	"errors"
	"net"
	"os"
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
