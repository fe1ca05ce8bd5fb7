package userspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
)

// Options configures a [Forwarder]. Only Address is required.
type Options struct {
	// Address of this node on which the sockets listen. It must not be
	// unspecified: no socket listens on all addresses.
	Address netip.Addr

	// DialTimeouts of the tries to reach a backend; after the last one the
	// connection is given up. Nil means 250 ms, 500 ms, 1 s, 2 s, 4 s.
	DialTimeouts []time.Duration

	// IdleTimeout ends a UDP flow that has been silent; 0 means one minute.
	IdleTimeout time.Duration

	Log *slog.Logger // nil means slog.Default
}

// A Forwarder implements [proxy.Forwarder]. Set and Remove work while Run does.
type Forwarder struct {
	opts    Options
	ready   chan struct{}
	packets sync.Pool // of *packet

	mu    sync.Mutex
	group *run.Group               // guarded by mu; nil before and after Run
	ports map[proxy.PoolID]*socket // guarded by mu
}

// A socket is one listening port.
type socket struct {
	balancer *balancer
	at       netip.AddrPort
	close    func() error // ends the goroutine that serves it
}

// New returns a forwarder that has not started; call [Forwarder.Run].
func New(o Options) (*Forwarder, error) {
	if !o.Address.IsValid() || o.Address.IsUnspecified() {
		return nil, fmt.Errorf("userspace: Options.Address is %v, want an address of this node", o.Address)
	}
	if o.DialTimeouts == nil {
		o.DialTimeouts = []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}
	}
	o.IdleTimeout = cmp.Or(o.IdleTimeout, time.Minute)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Forwarder{opts: o, ready: make(chan struct{}), ports: map[proxy.PoolID]*socket{}, packets: sync.Pool{New: func() any { return new(packet) }}}, nil
}

// Ready is closed when Set may be called.
func (f *Forwarder) Ready() <-chan struct{} { return f.ready }

// Run forwards until ctx is over, then closes every socket and connection.
func (f *Forwarder) Run(ctx context.Context) error {
	group := run.NewGroup(ctx, 0)
	f.mu.Lock()
	f.group = group
	f.mu.Unlock()
	close(f.ready)
	<-ctx.Done()

	f.mu.Lock()
	f.group = nil
	for id, s := range f.ports {
		_ = s.close() // it is being thrown away
		delete(f.ports, id)
	}
	f.mu.Unlock()
	group.Stop()
	return nil
}

// Set implements [proxy.Forwarder].
func (f *Forwarder) Set(p proxy.Pool) (netip.AddrPort, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.group == nil {
		return netip.AddrPort{}, errors.New("userspace: the forwarder is not running")
	}
	s := f.ports[p.PoolID]
	if s == nil {
		var err error
		if s, err = f.open(p.Protocol); err != nil {
			return netip.AddrPort{}, err
		}
		f.ports[p.PoolID] = s
	}
	s.balancer.set(p.Backends, p.Affinity)
	return s.at, nil
}

// Remove implements [proxy.Forwarder].
func (f *Forwarder) Remove(id proxy.PoolID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.ports[id]; s != nil {
		_ = s.close() // it is being thrown away
		delete(f.ports, id)
	}
}

// Settle implements [proxy.Forwarder]. A connection is on its way until the server
// has sent something, or a second after it was made: only then is it known not to
// stand in a queue that ends with the server's listener.
func (f *Forwarder) Settle(ctx context.Context) {
	f.mu.Lock()
	var all []*balancer
	for _, s := range f.ports {
		all = append(all, s.balancer)
	}
	f.mu.Unlock()
	for _, b := range all {
		waiting, grown := b.leaving()
		for len(waiting) > 0 {
			select {
			case <-grown:
			case <-ctx.Done():
				return
			}
			// Those that leave later are another call's.
			var now []netip.AddrPort
			now, grown = b.leaving()
			waiting = slices.DeleteFunc(waiting, func(a netip.AddrPort) bool { return !slices.Contains(now, a) })
		}
	}
}

// open makes a socket on a free port and serves it. f.mu is held.
func (f *Forwarder) open(protocol corev1.Protocol) (*socket, error) {
	s := &socket{balancer: newBalancer()}
	group := f.group
	at := netip.AddrPortFrom(f.opts.Address, 0)
	switch protocol {
	case corev1.ProtocolTCP:
		l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return nil, err
		}
		s.at, s.close = l.Addr().(*net.TCPAddr).AddrPort(), l.Close
		group.Go(func(context.Context) { f.acceptTCP(group, l, s.balancer) })
	case corev1.ProtocolUDP:
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return nil, err
		}
		s.at, s.close = c.LocalAddr().(*net.UDPAddr).AddrPort(), c.Close
		group.Go(func(context.Context) { f.serveUDP(group, c, s.balancer) })
	default:
		return nil, fmt.Errorf("protocol %s is not supported, want TCP or UDP", protocol)
	}
	// A 4-in-6 form would not compare equal to what the rules hold.
	s.at = netip.AddrPortFrom(s.at.Addr().Unmap(), s.at.Port())
	return s, nil
}
