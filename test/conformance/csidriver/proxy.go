package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// proxy serves a socket for a driver that can't listen there itself: in some tests the suite answers the calls, outside of the
// cluster. The driver connects to the endpoint for backends instead, once for each client that it will serve. Clients and
// backends are joined in the order in which they came. It works until ctx is cancelled.
func proxy(ctx context.Context, socket, forBackends string) error {
	clients, err := listen(ctx, socket)
	if err != nil {
		return err
	}
	backends, err := listen(ctx, forBackends)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _, _ = clients.Close(), backends.Close() })
	defer stop()
	for {
		backend, err := acceptOpen(backends)
		if err != nil {
			return unlessStopped(ctx, err)
		}
		client, err := acceptOpen(clients)
		if err != nil {
			return unlessStopped(ctx, err)
		}
		for peerClosed(backend) { // while there was no client
			_ = backend.Close()
			if backend, err = acceptOpen(backends); err != nil {
				return unlessStopped(ctx, err)
			}
		}
		go join(client, backend)
	}
}

// acceptOpen returns the next connection whose other end is still open. A client that has given up would otherwise take the
// backend of one that waits.
func acceptOpen(l net.Listener) (net.Conn, error) {
	for {
		c, err := l.Accept()
		if err != nil || !peerClosed(c) {
			return c, err
		}
		_ = c.Close()
	}
}

// peerClosed reports whether the other end of a connection is closed.
func peerClosed(c net.Conn) (closed bool) {
	raw, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := raw.SyscallConn()
	if err == nil {
		err = control.Control(func(fd uintptr) {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
			if n, err := unix.Poll(poll, 0); n > 0 && err == nil {
				closed = poll[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
			}
		})
	}
	return closed || err != nil
}

// unlessStopped returns err, or nil for the error of a listener that was closed because ctx is cancelled.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// join copies between two connections until one of them ends, and closes both.
func join(a, b net.Conn) {
	var g sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		g.Go(func() {
			_, _ = io.Copy(pair[0], pair[1]) // the error says only that one end was closed
			_, _ = a.Close(), b.Close()
		})
	}
	g.Wait()
}
