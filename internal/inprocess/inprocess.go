// Package inprocess connects two parts of one process that speak HTTP with each other.
//
// A connection is a pair of unix sockets without a name, so other processes cannot make one. A part that would only copy bytes between
// such a connection and another one gives that to the other part instead, see [Conn.Replace].
package inprocess

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
)

// A Listener is a [net.Listener] whose connections come from its method Dial only; all are of type [*Conn]. Make one with [New].
type Listener struct {
	conns chan net.Conn
	done  chan struct{}
	close sync.Once
}

// New returns a listener.
func New() *Listener {
	return &Listener{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Dial makes a connection. It waits until it is accepted, the listener is closed or ctx is cancelled.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	near, far, err := pair()
	if err != nil {
		return nil, l.fault("dial", err)
	}
	select {
	case l.conns <- far:
		return near, nil
	case <-l.done:
		err = net.ErrClosed
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	_ = near.Close()
	_ = far.Close()
	return nil, l.fault("dial", err)
}

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, l.fault("accept", net.ErrClosed)
	}
}

// Close implements [net.Listener]. It does not close connections.
func (l *Listener) Close() error {
	l.close.Do(func() { close(l.done) })
	return nil
}

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return address{} }

func (l *Listener) fault(op string, err error) error {
	return &net.OpError{Op: op, Net: address{}.Network(), Addr: address{}, Err: err}
}

type address struct{}

func (address) Network() string { return "unix" }
func (address) String() string  { return "in the same process" }

// pair returns both ends of a connection.
func pair() (near, far *Conn, err error) {
	fds, err := socketPair()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	first, err := connOf(fds[0])
	if err != nil {
		_ = syscall.Close(fds[1])
		return nil, nil, err
	}
	second, err := connOf(fds[1])
	if err != nil {
		_ = first.Close()
		return nil, nil, err
	}
	a, b := &replacement{closed: make(chan struct{})}, &replacement{closed: make(chan struct{})}
	return &Conn{Conn: first, own: a, others: b}, &Conn{Conn: second, own: b, others: a}, nil
}

// connOf takes over the descriptor.
func connOf(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "socketpair")
	defer f.Close() // FileConn duplicates it
	return net.FileConn(f)
}
