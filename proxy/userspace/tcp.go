package userspace

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
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
	out, backend, err := f.dial(ctx, client.Addr().Unmap(), b)
	if err != nil {
		f.opts.Log.Debug("no backend of a service answered", "client", client, "err", err)
		// A reset says that nothing was carried; a close would look like an
		// empty answer.
		_ = in.SetLinger(0)
		_ = in.Close()
		return
	}
	y := &youth{done: func() { b.done(backend) }}
	y.timer = time.AfterFunc(youthLimit, y.end)
	join(ctx, in, out, y.end)
	y.end()
}

// youthLimit is after what time a connection counts as taken over by the server,
// although that has not sent anything: it may be waiting for the client to speak, or
// take its time to answer.
const youthLimit = time.Second

// A youth is the time from the choice of a backend until its server is known to
// have taken the connection over. Until then it stands in a queue of the kernel,
// and is reset if the server closes its listener.
type youth struct {
	done  func()
	timer *time.Timer
	once  sync.Once
}

func (y *youth) end() {
	y.once.Do(func() {
		if y.timer != nil {
			y.timer.Stop()
		}
		y.done()
	})
}

// errNoBackend is the outcome of a dial when there was never one to try.
var errNoBackend = errors.New("no backend")

// dial connects to a backend, trying one after the other. The caller says when the
// connection to the one that it returns is not young any more.
func (f *Forwarder) dial(ctx context.Context, client netip.Addr, b *balancer) (*net.TCPConn, netip.AddrPort, error) {
	last := errNoBackend
	again := false
	for _, timeout := range f.opts.DialTimeouts {
		// One round: each backend once, all within the timeout of this round.
		roundCtx, cancel := context.WithTimeout(ctx, timeout)
		var changed <-chan struct{}
		for range max(1, b.count()) {
			backend, c, ok := b.begin(client, time.Now(), again)
			changed = c
			if !ok {
				break
			}
			var d net.Dialer
			conn, err := d.DialContext(roundCtx, "tcp4", backend.String())
			if err == nil {
				cancel()
				return conn.(*net.TCPConn), backend, nil
			}
			b.done(backend)
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
			return nil, netip.AddrPort{}, context.Cause(ctx)
		}
	}
	return nil, netip.AddrPort{}, last
}

// join copies in both directions until both have ended, one is broken, or ctx is
// over; then it closes both. It calls answered when b has sent something.
func join(ctx context.Context, a, b *net.TCPConn, answered func()) {
	closeBoth := func() { _ = a.Close(); _ = b.Close() }
	stop := context.AfterFunc(ctx, closeBoth)
	defer stop()
	defer closeBoth()
	back := run.NewGroup(ctx, 0)
	back.Go(func(context.Context) {
		if copyFirst(a, b, answered) {
			copyHalf(a, b)
		}
	})
	copyHalf(b, a)
	back.Wait()
	back.Stop()
}

// copyFirst copies what comes first, calls answered, and reports whether there may
// be more.
func copyFirst(to, from *net.TCPConn, answered func()) bool {
	var buf [4096]byte
	n, err := from.Read(buf[:])
	answered()
	if n > 0 {
		if _, failed := to.Write(buf[:n]); failed != nil {
			err = failed
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		_ = to.CloseWrite()
	case err != nil:
		_ = to.Close()
		_ = from.Close()
	}
	return err == nil
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
