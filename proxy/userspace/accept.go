package userspace

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
)

// A listener is the socket of a pool of TCP.
type listener struct {
	pool *pool
	tcp  *net.TCPListener
	raw  syscall.RawConn
	done chan struct{} // closed when run has closed the socket
}

// listenTCP opens a listener on a free port. Accepted connections inherit its socket options.
func (p *pool) listenTCP(at netip.Addr) (*listener, error) {
	config := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			keepAlive(int(fd))
			urgentInline(int(fd))
		})
	}}
	config.SetMultipathTCP(false)                                                                         // the kernel reports no original destination for a connection of MPTCP
	l, err := config.Listen(context.Background(), network("tcp", at), netip.AddrPortFrom(at, 0).String()) //nolint:forbidigo // an address needs no lookup, so nothing blocks
	if err != nil {
		return nil, err
	}
	tcp := l.(*net.TCPListener) // package net promises it
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	return &listener{pool: p, tcp: tcp, raw: raw, done: make(chan struct{})}, nil
}

// network returns the name that package net has for a protocol and an address family.
func network(protocol string, at netip.Addr) string {
	if at.Is4() {
		return protocol + "4"
	}
	return protocol + "6"
}

// retryAccept is the pause before a listener accepts again after it ran out of memory or
// descriptors.
const retryAccept = 50 * time.Millisecond

// run accepts connections until stop is called, accepts those still in the queue, and closes the
// socket.
func (s *listener) run(ctx context.Context) {
	f := s.pool.f
	defer func() {
		_ = s.tcp.Close()
		f.give(1)
		close(s.done)
	}()
	for {
		c, err := s.tcp.AcceptTCP()
		switch {
		case err == nil:
			s.serve(c)
		case errors.Is(err, os.ErrDeadlineExceeded): // stop was called
			s.drain()
			return
		case exhausted(err):
			s.pool.warn("accepting a connection to a service", err)
			if !f.spare.lend(s.refuseOne) {
				pause(ctx, retryAccept)
			}
		case ctx.Err() != nil:
			return
		}
	}
}

// drain serves the connections in the accept queue.
func (s *listener) drain() {
	for {
		c := s.acceptNow()
		if c == nil {
			return
		}
		s.serve(c)
	}
}

// serve starts a goroutine for a connection. A panic ends only this connection.
func (s *listener) serve(c *net.TCPConn) {
	p := s.pool
	started := p.f.group.Go(func(ctx context.Context) {
		if !run.Shield(p.f.opts.Log, func() { p.serve(ctx, c) }, "service", p.id.Service, "port", p.id.Port) {
			reset(c)
		}
	})
	if !started {
		reset(c)
	}
}

// acceptNow returns the next connection of the accept queue, or nil if it is empty.
func (s *listener) acceptNow() (c *net.TCPConn) {
	_ = s.raw.Control(func(listening uintptr) {
		fd, _, err := unix.Accept4(int(listening), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		file := os.NewFile(uintptr(fd), "connection")
		defer func() { _ = file.Close() }()
		if conn, err := net.FileConn(file); err == nil {
			c, _ = conn.(*net.TCPConn)
		}
	})
	return c
}

// refuseOne resets the next connection of the accept queue and reports whether there was one.
func (s *listener) refuseOne() (done bool) {
	_ = s.raw.Control(func(listening uintptr) {
		fd, _, err := unix.Accept4(int(listening), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		done = true
		s.pool.count.connections.Add(1)
		s.pool.count.refused.Add(1)
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		_ = unix.Close(fd)
	})
	return done
}

// stop ends run and waits for it.
func (s *listener) stop() {
	_ = s.tcp.SetDeadline(aLongTimeAgo)
	<-s.done
}

// exhausted reports whether a call failed because descriptors or memory ran out.
func exhausted(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM)
}

// pause waits for d or until ctx is cancelled.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// A spare is a descriptor that is closed to accept and reset a connection when the process has
// no other one: otherwise the client would wait for ever (userspace-U8).
type spare struct {
	mu   sync.Mutex
	file *os.File // guarded by mu; nil if there is none
}

// lend calls f while the descriptor is closed and returns its result.
func (s *spare) lend(f func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		_ = s.file.Close()
	}
	done := f()
	s.file, _ = os.Open(os.DevNull)
	return done
}

func (s *spare) open() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file, err = os.Open(os.DevNull)
	return err
}

func (s *spare) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		_ = s.file.Close()
	}
}
