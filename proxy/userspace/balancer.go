package userspace

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// maxClients bounds how many clients of one port are remembered for session
// affinity; when there are more, the one that was seen first is forgotten.
const maxClients = 65536

// A balancer chooses backends in turn. It is safe for concurrent use and reads
// no clock.
type balancer struct {
	mu       sync.Mutex
	backends []netip.AddrPort       // guarded by mu; not changed in place
	next     int                    // guarded by mu; index of the next choice
	affinity time.Duration          // guarded by mu; 0 means none
	clients  map[netip.Addr]session // guarded by mu
	changed  chan struct{}          // guarded by mu; closed and replaced when the backends change

	// young counts the connections on their way to each backend: picked, and not
	// taken over by the server yet.
	young map[netip.AddrPort]int // guarded by mu
	grown chan struct{}          // guarded by mu; if somebody waits: closed when a backend has no young ones left
}

// A session ties a client to a backend.
type session struct {
	backend netip.AddrPort
	seen    time.Time // of the newest connection
}

func newBalancer() *balancer {
	return &balancer{clients: map[netip.Addr]session{}, changed: make(chan struct{}), young: map[netip.AddrPort]int{}}
}

// set makes these the backends. Sessions with others are forgotten.
func (b *balancer) set(backends []netip.AddrPort, affinity time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.affinity = affinity; affinity == 0 {
		clear(b.clients)
	}
	if slices.Equal(b.backends, backends) {
		return
	}
	// Go on after the backend whose turn it was, so that frequent changes don't
	// favour the first ones.
	if len(b.backends) > 0 {
		at, _ := slices.BinarySearchFunc(backends, b.backends[b.next%len(b.backends)], netip.AddrPort.Compare)
		b.next = at
	}
	b.backends = slices.Clone(backends)
	for client, s := range b.clients {
		if !slices.Contains(b.backends, s.backend) {
			delete(b.clients, client)
		}
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// pick returns the backend for a connection of a client, and a channel that is
// closed when the backends change. With again, the one that was picked before did
// not answer: its session is given up. ok is false when there is none.
func (b *balancer) pick(client netip.Addr, now time.Time, again bool) (backend netip.AddrPort, changed <-chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.choose(client, now, again)
}

// choose does the work of pick. b.mu is held.
func (b *balancer) choose(client netip.Addr, now time.Time, again bool) (backend netip.AddrPort, changed <-chan struct{}, ok bool) {
	if len(b.backends) == 0 {
		return netip.AddrPort{}, b.changed, false
	}
	if s, known := b.clients[client]; known && !again && now.Sub(s.seen) < b.affinity {
		b.clients[client] = session{s.backend, now}
		return s.backend, b.changed, true
	}
	b.next %= len(b.backends)
	backend = b.backends[b.next]
	b.next++
	if b.affinity > 0 {
		b.makeRoom(now)
		b.clients[client] = session{backend, now}
	}
	return backend, b.changed, true
}

// begin is pick for a connection, which is young until done is called, once, with
// its backend.
func (b *balancer) begin(client netip.Addr, now time.Time, again bool) (backend netip.AddrPort, changed <-chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	backend, changed, ok = b.choose(client, now, again)
	if ok {
		b.young[backend]++
	}
	return backend, changed, ok
}

// done says that a connection to a backend is not young any more.
func (b *balancer) done(backend netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.young[backend]--; b.young[backend] > 0 {
		return
	}
	delete(b.young, backend)
	if b.grown != nil {
		close(b.grown)
		b.grown = nil
	}
}

// leaving returns those that are no backends any more and have young connections,
// and a channel that is closed when one of them may have none left.
func (b *balancer) leaving() ([]netip.AddrPort, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []netip.AddrPort
	for backend := range b.young {
		if !slices.Contains(b.backends, backend) {
			left = append(left, backend)
		}
	}
	if b.grown == nil {
		b.grown = make(chan struct{})
	}
	return left, b.grown
}

// makeRoom forgets expired sessions, or else the oldest, once there are too many.
func (b *balancer) makeRoom(now time.Time) {
	if len(b.clients) < maxClients {
		return
	}
	var oldest netip.Addr
	var at time.Time
	for client, s := range b.clients {
		if now.Sub(s.seen) >= b.affinity {
			delete(b.clients, client)
		} else if at.IsZero() || s.seen.Before(at) {
			oldest, at = client, s.seen
		}
	}
	if len(b.clients) >= maxClients {
		delete(b.clients, oldest)
	}
}

// count returns the number of backends.
func (b *balancer) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.backends)
}

// has reports whether a backend is still one.
func (b *balancer) has(backend netip.AddrPort) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.backends, backend)
}
