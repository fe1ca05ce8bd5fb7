package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// Sockets are a listening address of the server, over UDP and over TCP; or several, see [Join].
type Sockets struct {
	udp []*net.UDPConn
	tcp []*net.TCPListener
}

// Join returns all of these as one. Its Addr is the first one's.
func Join(all ...*Sockets) *Sockets {
	var s Sockets
	for _, one := range all {
		s.udp, s.tcp = append(s.udp, one.udp...), append(s.tcp, one.tcp...)
	}
	return &s
}

// portTries is the number of times that a free UDP port may be taken over TCP before Listen gives
// up.
const portTries = 10

// Listen opens the sockets of an address. Port 0 is any free one. Unspecified and multicast
// addresses are refused: name servers that are reachable from everywhere are used for attacks.
func Listen(ctx context.Context, c *net.ListenConfig, at netip.AddrPort) (*Sockets, error) {
	if !at.Addr().IsValid() || at.Addr().IsUnspecified() || at.Addr().IsMulticast() {
		return nil, fmt.Errorf("a name server can't listen on %s: want one address of this machine", at)
	}
	for try := 1; ; try++ {
		p, err := c.ListenPacket(ctx, "udp", at.String())
		if err != nil {
			return nil, err
		}
		udp := p.(*net.UDPConn)
		makeRoom(udp)
		port := udp.LocalAddr().(*net.UDPAddr).AddrPort().Port()
		l, err := c.Listen(ctx, "tcp", netip.AddrPortFrom(at.Addr(), port).String())
		if err == nil {
			return &Sockets{[]*net.UDPConn{udp}, []*net.TCPListener{l.(*net.TCPListener)}}, nil
		}
		_ = udp.Close()
		if at.Port() != 0 || try == portTries {
			return nil, err
		}
	}
}

// burst is the size of a socket's receive buffer, for the thousands of questions that come when
// many pods start. The default of 208 KiB holds 277 questions, of which each takes 768 bytes.
const burst = 4 << 20

// makeRoom tries to set that size. Without CAP_NET_ADMIN the limit is net.core.rmem_max.
func makeRoom(udp *net.UDPConn) {
	raw, err := udp.SyscallConn()
	if err != nil {
		return
	}
	forced := false
	_ = raw.Control(func(fd uintptr) { forced = forceBuffer(fd) == nil })
	if !forced {
		_ = udp.SetReadBuffer(burst)
	}
}

// Addr returns the first address.
func (s *Sockets) Addr() netip.AddrPort { return s.Addrs()[0] }

// Addrs returns all addresses.
func (s *Sockets) Addrs() []netip.AddrPort {
	var all []netip.AddrPort
	for _, udp := range s.udp {
		at := udp.LocalAddr().(*net.UDPAddr).AddrPort()
		all = append(all, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))
	}
	return all
}

// Close closes them.
func (s *Sockets) Close() error {
	var errs []error
	for i := range s.udp {
		errs = append(errs, s.udp[i].Close(), s.tcp[i].Close())
	}
	return errors.Join(errs...)
}

const (
	maxQuery = 4096 // largest question over UDP in bytes

	maxReaders = 4 // goroutines that read one socket: the kernel returns packets one by one

	incomplete = 2 * time.Second // until questions are answered although the zone is not complete (dns-D4)
)

// serve answers until ctx is cancelled.
func (s *Server) serve(ctx context.Context) error {
	s.opts.Log.InfoContext(ctx, "cluster DNS listens", "address", s.opts.Sockets.Addrs(), "for", "clients that can reach this address", "domain", s.zone.Domain())
	defer s.opts.Sockets.Close()
	wait := time.NewTimer(incomplete)
	select {
	case <-s.complete:
	case <-wait.C:
		s.opts.Log.WarnContext(ctx, "cluster DNS waits for the API server")
	case <-ctx.Done():
	}
	wait.Stop()

	group := run.NewGroup(ctx, 0)
	later := run.NewGroup(ctx, 0) // bounded by the forwarder's slots
	sockets := s.opts.Sockets
	broken := make(chan error, len(sockets.udp)*(maxReaders+1))
	for i := range sockets.udp {
		for range min(maxReaders, runtime.GOMAXPROCS(0)) {
			group.Go(func(ctx context.Context) { broken <- s.readPackets(ctx, sockets.udp[i], later) })
		}
		group.Go(func(ctx context.Context) { broken <- s.accept(ctx, sockets.tcp[i]) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-broken:
	}
	err = errors.Join(err, s.opts.Sockets.Close())
	group.Stop()
	later.Stop()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// readPackets answers the packets of a UDP socket until the socket is closed.
func (s *Server) readPackets(ctx context.Context, udp *net.UDPConn, later *run.Group) error {
	family := familyOf(udp.LocalAddr().(*net.UDPAddr).AddrPort())
	w := newWorker(s, overUDP)
	w.family = family
	in := make([]byte, maxQuery)
	for {
		n, from, err := udp.ReadFromUDPAddrPort(in)
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			s.opts.Log.WarnContext(ctx, "reading a packet", "err", err)
			if !run.Pause(ctx, 100*time.Millisecond) {
				return nil
			}
			continue
		}
		out, more := w.answer(in[:n])
		if more {
			packet := append([]byte(nil), in[:n]...)
			if !later.Go(func(ctx context.Context) {
				defer s.upstream.Release()
				w := newWorker(s, overUDP)
				w.family = family
				if out := w.ask(ctx, packet); out != nil {
					_, _ = udp.WriteToUDPAddrPort(out, from) // clients retry
				}
			}) {
				s.upstream.Release()
			}
		}
		if out != nil {
			_, _ = udp.WriteToUDPAddrPort(out, from)
		}
	}
}
