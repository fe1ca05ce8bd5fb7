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

// proxy connects each client of a socket to one connection that it accepts at another endpoint, where the driver connects to
// it. It works until ctx is cancelled.
func proxy(ctx context.Context, socket, drivers string) error {
	clients, err := listen(ctx, socket)
	if err != nil {
		return err
	}
	backends, err := listen(ctx, drivers)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { clients.Close(); backends.Close() })
	defer stop()
	for {
		backend, err := accept(backends)
		if err != nil {
			return end(ctx, err)
		}
		client, err := accept(clients)
		if err != nil {
			return end(ctx, err)
		}
		for gone(backend) {
			backend.Close()
			if backend, err = accept(backends); err != nil {
				return end(ctx, err)
			}
		}
		go join(client, backend)
	}
}

// accept returns the next connection whose other end is still there: a client that has waited for too long would take the place
// of one that waits.
func accept(l net.Listener) (net.Conn, error) {
	for {
		c, err := l.Accept()
		if err != nil || !gone(c) {
			return c, err
		}
		c.Close()
	}
}

// gone reports whether the other end of a connection is closed.
func gone(c net.Conn) (closed bool) {
	raw, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := raw.SyscallConn()
	if err == nil {
		err = control.Control(func(fd uintptr) {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}} //nolint:gosec // a descriptor
			if n, err := unix.Poll(poll, 0); n > 0 && err == nil {
				closed = poll[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
			}
		})
	}
	return closed || err != nil
}

// end returns nil for the error of a listener that was closed because the program ends.
func end(ctx context.Context, err error) error {
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
			_, _ = io.Copy(pair[0], pair[1]) // either end may break off
			a.Close()
			b.Close()
		})
	}
	g.Wait()
}
