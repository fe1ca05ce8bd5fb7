package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
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
		client, err := clients.Accept()
		if err != nil {
			return end(ctx, err)
		}
		backend, err := backends.Accept()
		if err != nil {
			return end(ctx, err)
		}
		go join(client, backend)
	}
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
