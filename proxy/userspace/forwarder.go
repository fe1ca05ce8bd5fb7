package userspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
)

// Options configures a [Forwarder]. Address or Address6 is required.
type Options struct {
	// Address and Address6 are the addresses of this node on which the sockets listen, for either
	// family. They must not be unspecified: no socket listens on all addresses. Pools of a family
	// without one are refused.
	Address, Address6 netip.Addr

	// DialTimeouts are the durations of the rounds of the search for a backend; after the last one
	// the connection is refused. Nil means 250 ms, 500 ms, 1 s, 2 s.
	DialTimeouts []time.Duration

	// IdleTimeout ends a UDP flow that has been silent; 0 means one minute.
	IdleTimeout time.Duration

	// MaxFlows is the largest number of UDP flows at a time of each pool; 0 means 4096.
	MaxFlows int

	// Descriptors is the largest number of descriptors of sockets at a time. A connection has two.
	// 0 means half of the process's limit (RLIMIT_NOFILE). One Service gets at most half of them,
	// unless its pool has a limit. The pipes of long streams have up to a quarter as many
	// descriptors in addition, and at most 512.
	Descriptors int

	// Mark is the mark of all packets to backends (SO_MARK), by which rules recognize relayed
	// packets; 0 means none. It needs CAP_NET_ADMIN.
	Mark uint32

	// Table is the name of the nftables table (family inet) of transparent pools. It must be unique
	// to this process. If it is empty no pool can be transparent.
	Table string

	// Reachable reports whether an address is that of a pod of this node. Answers of such backends
	// to clients elsewhere come back through this node, so that a transparent connection to them
	// works. Other backends see the address of the node even if their pool is transparent. Nil
	// means that all connections can be transparent.
	Reachable func(netip.Addr) bool

	Log *slog.Logger // nil means slog.Default
}

// A Forwarder implements [proxy.Forwarder]. Set and Remove work while Run does.
type Forwarder struct {
	opts  Options
	ready chan struct{}

	descriptors atomic.Int64 // number in use
	pipes       atomic.Int64 // number in use by long streams of TCP
	maxPipes    int64
	buffers     buffers // of TCP
	turn        atomic.Uint32
	loops       []*loop    // of UDP; set by Run before ready is closed
	group       *run.Group // of TCP listeners and connections; set by Run before ready is closed
	spare       spare
	own         sync.Map // addresses where the forwarder itself listens: keys are netip.AddrPort

	mu      sync.Mutex
	running bool                             // guarded by mu
	pools   map[proxy.PoolID]*pool           // guarded by mu
	budgets map[types.NamespacedName]*budget // guarded by mu
	removed map[*balancer]bool               // guarded by mu; of pools that had young connections when they were removed
	routed  bool                             // guarded by mu; there was a transparent pool, and its rules and routes exist

	limit    *limiter
	refusers map[bool]*refuser // guarded by mu; by whether it is for IPv6; nil if it can't be made
}

// A pool is one listening socket, and the common state of its connections.
type pool struct {
	f        *Forwarder
	id       proxy.PoolID
	at       netip.AddrPort
	balancer *balancer
	listener *listener // of TCP, or nil
	relay    *relay    // of UDP, or nil
	count    counters

	budget      *budget
	header      atomic.Int32 // version of the PROXY protocol, or 0
	transparent atomic.Bool

	warned  atomic.Int64  // last time that a warning was logged, in seconds
	changes atomic.Uint64 // number of changes of backends
}

// New returns a forwarder that has not started; call [Forwarder.Run].
func New(o Options) (*Forwarder, error) {
	if !o.Address.IsValid() && !o.Address6.IsValid() {
		return nil, errors.New("userspace: neither Options.Address nor Options.Address6 is set, want an address of this node")
	}
	for name, a := range map[string]netip.Addr{"Address": o.Address, "Address6": o.Address6} {
		if a.IsValid() && (a.IsUnspecified() || a.Is4() != (name == "Address") || a.Is4In6()) {
			return nil, fmt.Errorf("userspace: Options.%s is %v, want an address of this node of that family", name, a)
		}
	}
	if o.DialTimeouts == nil {
		o.DialTimeouts = []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}
	}
	if len(o.DialTimeouts) == 0 || len(o.DialTimeouts) > 100 {
		return nil, fmt.Errorf("userspace: Options.DialTimeouts has %d rounds, want 1 to 100", len(o.DialTimeouts))
	}
	if o.Descriptors == 0 {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return nil, fmt.Errorf("userspace: reading RLIMIT_NOFILE: %w", err)
		}
		o.Descriptors = int(min(limit.Cur, 1<<22)) / 2
	}
	o.IdleTimeout = cmp.Or(o.IdleTimeout, time.Minute)
	o.MaxFlows = cmp.Or(o.MaxFlows, 4096)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	const mostPipes = 256 // each has two descriptors and up to a MiB of memory
	return &Forwarder{
		maxPipes: int64(min(mostPipes, o.Descriptors/8)),
		opts:     o, ready: make(chan struct{}),
		pools: map[proxy.PoolID]*pool{}, removed: map[*balancer]bool{}, budgets: map[types.NamespacedName]*budget{}, limit: newLimiter(), refusers: map[bool]*refuser{},
	}, nil
}

// Ready is closed when Set may be called.
func (f *Forwarder) Ready() <-chan struct{} { return f.ready }

// Run forwards until ctx is cancelled, then closes every socket and resets every connection. It
// returns an error if it can't start. It may be called once.
func (f *Forwarder) Run(ctx context.Context) error {
	var err error
	if f.opts.Table != "" { // an earlier process may have been killed
		if err := RemoveTransparent(f.opts.Table); err != nil {
			f.opts.Log.WarnContext(ctx, "removing what an earlier service proxy left", "err", err)
		}
	}
	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	f.group = run.NewGroup(ctx, 0)
	defer f.group.Stop()
	if err := f.spare.open(); err != nil {
		return fmt.Errorf("userspace: %w", err)
	}
	defer f.spare.close()
	for range runtime.GOMAXPROCS(0) {
		var l *loop
		if l, err = newLoop(f); err != nil {
			break
		}
		f.loops = append(f.loops, l)
	}
	if err != nil {
		for _, l := range f.loops {
			l.closeAll()
		}
		return fmt.Errorf("userspace: %w", err)
	}
	for _, l := range f.loops {
		group.Go(l.run)
	}
	f.mu.Lock()
	f.running = true
	f.mu.Unlock()
	close(f.ready)
	<-ctx.Done()

	f.mu.Lock()
	f.running = false
	for id, p := range f.pools {
		p.stop()
		delete(f.pools, id)
	}
	f.mu.Unlock()
	f.group.Stop()
	group.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.refusers {
		if r != nil {
			r.close()
		}
	}
	if f.routed {
		err = RemoveTransparent(f.opts.Table)
	}
	return err
}

// refuser returns the refuser of a family, or nil if this process may not send ICMP errors. f.mu is
// held.
func (f *Forwarder) refuser(from netip.Addr) *refuser {
	if r, known := f.refusers[from.Is6()]; known {
		return r
	}
	r, err := newRefuser(from, f.limit)
	if err != nil {
		f.opts.Log.Warn("clients of UDP services without endpoints get no ICMP errors: sending them needs CAP_NET_RAW", "err", err)
	}
	f.refusers[from.Is6()] = r
	return r
}

// anyLoop returns the loop whose turn it is.
func (f *Forwarder) anyLoop() *loop { return f.loops[f.turn.Add(1)%uint32(len(f.loops))] }

// Set implements [proxy.Forwarder].
func (f *Forwarder) Set(want proxy.Pool) (netip.AddrPort, error) {
	if want.ProxyProtocol < 0 || want.ProxyProtocol > 2 {
		return netip.AddrPort{}, fmt.Errorf("userspace: version %d of the PROXY protocol, want 1, 2 or 0 for none", want.ProxyProtocol)
	}
	if want.ProxyProtocol != 0 && want.Protocol != corev1.ProtocolTCP {
		return netip.AddrPort{}, fmt.Errorf("userspace: the PROXY protocol is for TCP, and not for %s", want.Protocol)
	}
	if want.MaxConnections < 0 {
		return netip.AddrPort{}, fmt.Errorf("userspace: at most %d connections, want 0 or more", want.MaxConnections)
	}
	for _, b := range want.Backends {
		if b.Addr().Is4() == want.IPv6 || !b.IsValid() || b.Port() == 0 {
			return netip.AddrPort{}, fmt.Errorf("userspace: backend %v, want an address and port of the family of the pool", b)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.running {
		return netip.AddrPort{}, errStopped
	}
	if want.Transparent && !f.routed {
		if err := f.makeTransparent(); err != nil {
			return netip.AddrPort{}, fmt.Errorf("userspace: routing answers to transparent connections: %w", err)
		}
		f.routed = true
	}
	p := f.pools[want.PoolID]
	fresh := p == nil
	if fresh {
		p = &pool{f: f, id: want.PoolID, balancer: newBalancer(), budget: f.budgetOf(want.Service)}
	}
	share := int64(max(1, f.opts.Descriptors/4)) // two descriptors each, and half of all
	if want.Protocol == corev1.ProtocolTCP {
		p.budget.most.Store(cmp.Or(int64(want.MaxConnections), share))
	}
	p.header.Store(int32(want.ProxyProtocol))
	p.transparent.Store(want.Transparent)
	if p.balancer.set(want.Backends, want.Affinity) {
		p.changes.Add(1)
		if r := p.relay; r != nil {
			r.loop.ask(r.prune)
		}
	}
	if fresh {
		if err := p.open(); err != nil {
			f.leaveBudget(want.Service)
			return netip.AddrPort{}, err
		}
		f.pools[want.PoolID] = p
	}
	return p.at, nil
}

// Remove implements [proxy.Forwarder]. UDP flows end with their socket.
func (f *Forwarder) Remove(id proxy.PoolID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pools[id]
	if p == nil {
		return
	}
	delete(f.pools, id)
	f.leaveBudget(id.Service)
	p.stop()
	p.balancer.retire()
	f.forgetSettled()
	if left, _ := p.balancer.left(); len(left) > 0 {
		f.removed[p.balancer] = true
	}
}

// forgetSettled forgets removed pools without young connections. f.mu is held.
func (f *Forwarder) forgetSettled() {
	for b := range f.removed {
		if left, _ := b.left(); len(left) == 0 {
			delete(f.removed, b)
		}
	}
}

// Settle implements [proxy.Forwarder]. It waits for a connection until the server has sent
// something, or a second after it was made: only then is it known not to be in the accept queue,
// which ends with the server's listener.
func (f *Forwarder) Settle(ctx context.Context) {
	f.mu.Lock()
	f.forgetSettled()
	var all []*balancer
	for _, p := range f.pools {
		all = append(all, p.balancer)
	}
	for b := range f.removed {
		all = append(all, b)
	}
	f.mu.Unlock()
	for _, b := range all {
		waiting, grown := b.left()
		for len(waiting) > 0 {
			select {
			case <-grown:
			case <-ctx.Done():
				return
			}
			// Endpoints that are removed later are another call's.
			var now []*endpoint
			now, grown = b.left()
			waiting = slices.DeleteFunc(waiting, func(e *endpoint) bool { return !slices.Contains(now, e) })
		}
	}
}

// open makes the socket of a pool on a free port and serves it. f.mu is held.
func (p *pool) open() error {
	f := p.f
	address := f.opts.Address
	if p.id.IPv6 {
		address = f.opts.Address6
	}
	if !address.IsValid() {
		return fmt.Errorf("userspace: this node has no address of the family of the pool (IPv6: %t)", p.id.IPv6)
	}
	if p.id.Protocol != corev1.ProtocolTCP && p.id.Protocol != corev1.ProtocolUDP {
		return fmt.Errorf("userspace: protocol %s is carried in kernel mode only, want TCP or UDP", p.id.Protocol)
	}
	if !f.take(1) {
		return fmt.Errorf("userspace: %w", errDescriptors)
	}
	if p.id.Protocol == corev1.ProtocolTCP {
		l, err := p.listenTCP(address)
		if err != nil {
			f.give(1)
			return fmt.Errorf("userspace: listening at %v: %w", address, err)
		}
		p.listener, p.at = l, unmapped(l.tcp.Addr().(*net.TCPAddr).AddrPort())
		if !f.group.Go(l.run) { // Run is about to end
			f.give(1)
			return errors.Join(errStopped, l.tcp.Close())
		}
		f.own.Store(p.at, nil)
		return nil
	}
	fd, err := listenUDP(address)
	if err == nil {
		p.at, err = localAddress(fd)
	}
	if err == nil {
		f.own.Store(p.at, nil)
		l := f.anyLoop()
		p.relay = newRelay(p, l, fd)
		p.relay.refuser = f.refuser(address)
		p.relay.index, err = l.watch(p.relay, fd)
	}
	if err != nil {
		f.give(1)
		f.own.Delete(p.at)
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return fmt.Errorf("userspace: listening at %v: %w", address, err)
	}
	return nil
}

// stop closes the socket of a pool.
func (p *pool) stop() {
	defer p.f.own.Delete(p.at)
	if p.listener != nil {
		p.listener.stop()
	}
	if p.relay != nil {
		p.relay.stop()
	}
}

// take takes descriptors from the forwarder's, and reports whether there were enough.
func (f *Forwarder) take(n int64) bool {
	if f.descriptors.Add(n) > int64(f.opts.Descriptors) {
		f.descriptors.Add(-n)
		return false
	}
	return true
}

func (f *Forwarder) give(n int64) { f.descriptors.Add(-n) }

// errDescriptors is why connections are refused, and sockets are not opened.
var errDescriptors = errors.New("all descriptors that the service proxy may have are taken (RLIMIT_NOFILE)")

// admit takes the budget of a connection, and reports whether there was enough.
func (p *pool) admit() bool {
	if !p.budget.take() {
		p.warn("refusing connections to a service", p.budget.over())
		return false
	}
	if !p.f.take(2) {
		p.budget.give()
		p.warn("refusing connections to a service", errDescriptors)
		return false
	}
	p.count.open.Add(1)
	return true
}

// release gives back what admit took.
func (p *pool) release() {
	p.count.open.Add(-1)
	p.budget.give()
	p.f.give(2)
}

// prepare sets the options of a socket for packets from a client to an endpoint.
func (p *pool) prepare(fd int, e *endpoint, client netip.AddrPort) unix.Errno {
	if mark := p.f.opts.Mark; mark != 0 {
		if errno := set(fd, unix.SOL_SOCKET, unix.SO_MARK, int32(mark)); errno != 0 {
			return errno
		}
	}
	if p.transparent.Load() && p.f.canImpersonate(client.Addr(), e.at.Addr()) {
		return impersonate(fd, client.Addr())
	}
	return 0
}

// socketTo returns a new UDP socket for packets from a client to an endpoint.
func (p *pool) socketTo(e *endpoint, client netip.AddrPort) (int, unix.Errno) {
	fd, errno := socket(family(e.at.Addr()), unix.SOCK_DGRAM)
	if errno != 0 {
		return -1, errno
	}
	if errno = p.prepare(fd, e, client); errno != 0 {
		_ = unix.Close(fd)
		return -1, errno
	}
	return fd, 0
}

// isOwn reports whether an endpoint is a socket of the forwarder itself: a hostile
// EndpointSlice could send one connection in circles until all descriptors are in use.
func (p *pool) isOwn(e *endpoint) bool {
	if a := e.at.Addr(); a == p.f.opts.Address || a == p.f.opts.Address6 {
		_, own := p.f.own.Load(e.at)
		return own
	}
	return false
}

// warn logs an error of a pool, at most once a second: every connection may have it.
func (p *pool) warn(what string, err error) {
	now := time.Now().Unix()
	if last := p.warned.Load(); now > last && p.warned.CompareAndSwap(last, now) {
		p.f.opts.Log.Warn("cannot serve a service as configured", "service", p.id.Service, "port", p.id.Port, "when", what, "err", err)
	}
}

// listenUDP returns a socket of UDP on a free port.
func listenUDP(at netip.Addr) (int, error) {
	fd, errno := socket(family(at), unix.SOCK_DGRAM)
	if errno != 0 {
		return -1, errno
	}
	if at.Is6() {
		errno = set(fd, unix.SOL_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if errno == 0 {
		a := addressOf(netip.AddrPortFrom(at, 0))
		errno = bind(fd, &a)
	}
	err := asError(errno)
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	// Bursts wait here while the loop is busy; the kernel drops packets above that.
	set(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20)
	return fd, nil
}
