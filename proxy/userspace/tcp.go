package userspace

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// acceptTCP serves the connections of a listener until it is closed.
func (f *Forwarder) acceptTCP(group *run.Group, l *net.TCPListener, b *balancer) {
	for {
		in, err := l.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			// Out of descriptors, most likely: those that end make room, and
			// until then there is nothing to do but not to spin.
			f.opts.Log.Warn("accepting a connection to a service", "address", l.Addr(), "err", err)
			pause := time.NewTimer(50 * time.Millisecond)
			<-pause.C
			continue
		}
		if !group.Go(func(ctx context.Context) { f.serveTCP(ctx, in, b) }) {
			_ = in.Close()
			return
		}
	}
}

// serveTCP carries one connection. It owns in.
func (f *Forwarder) serveTCP(ctx context.Context, in *net.TCPConn, b *balancer) {
	client := in.RemoteAddr().(*net.TCPAddr).AddrPort()
	out, err := f.dial(ctx, client.Addr().Unmap(), b)
	if err != nil {
		f.opts.Log.Debug("no backend of a service answered", "client", client, "err", err)
		// A reset says that nothing was carried; a close would look like an
		// empty answer.
		_ = in.SetLinger(0)
		_ = in.Close()
		return
	}
	join(ctx, in, out)
}

// errNoBackend is the outcome of a dial when there was never one to try.
var errNoBackend = errors.New("no backend")

// dial connects to a backend, trying one after the other.
func (f *Forwarder) dial(ctx context.Context, client netip.Addr, b *balancer) (*net.TCPConn, error) {
	last := errNoBackend
	again := false
	for _, timeout := range f.opts.DialTimeouts {
		// One round: each backend once, all within the timeout of this round.
		roundCtx, cancel := context.WithTimeout(ctx, timeout)
		var changed <-chan struct{}
		for range max(1, b.count()) {
			backend, c, ok := b.pick(client, time.Now(), again)
			changed = c
			if !ok {
				break
			}
			var d net.Dialer
			conn, err := d.DialContext(roundCtx, "tcp4", backend.String())
			if err == nil {
				cancel()
				return conn.(*net.TCPConn), nil
			}
			last, again = err, true
			if roundCtx.Err() != nil {
				break
			}
		}
		// The rest of the round is a pause, which a change of the backends ends.
		select {
		case <-roundCtx.Done():
		case <-changed:
		}
		cancel()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return nil, last
}

// join copies in both directions until both have ended, one is broken, or ctx is
// over; then it closes both.
func join(ctx context.Context, a, b *net.TCPConn) {
	closeBoth := func() { _ = a.Close(); _ = b.Close() }
	stop := context.AfterFunc(ctx, closeBoth)
	defer stop()
	defer closeBoth()
	back := run.NewGroup(ctx, 0)
	back.Go(func(context.Context) { copyHalf(a, b) })
	copyHalf(b, a)
	back.Wait()
	back.Stop()
}

// copyHalf copies one direction. At its end the other side is told that no more
// comes; if it broke, both connections are closed so that the other direction
// does not wait for ever.
func copyHalf(to, from *net.TCPConn) {
	// On Linux this is splice(2): the bytes don't pass through the program.
	if _, err := io.Copy(to, from); err != nil {
		_ = to.Close()
		_ = from.Close()
		return
	}
	_ = to.CloseWrite()
}
