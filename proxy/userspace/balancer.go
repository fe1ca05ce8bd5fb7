package userspace

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// maxClients bounds the number of clients of one port that session affinity remembers; above that
// the least recent one is forgotten.
const maxClients = 65536

// An endpoint that failed is avoided for firstSuspicion, and twice as long after each further
// failure, up to maxSuspicion: long enough that few clients pay for a dead endpoint, short enough
// that a recovered one soon gets its share.
const (
	firstSuspicion = time.Second
	maxSuspicion   = 10 * time.Second
)

// A balancer chooses endpoints in turn. It is safe for concurrent use and reads no clock.
type balancer struct {
	mu        sync.Mutex
	endpoints []*endpoint             // guarded by mu; ascending, not changed in place
	next      int                     // guarded by mu; index of the next choice
	affinity  time.Duration           // guarded by mu; 0 means none
	sessions  map[netip.Addr]*session // guarded by mu
	recent    session                 // guarded by mu; ring of the sessions, oldest first
	changed   chan struct{}           // guarded by mu; closed and replaced when the endpoints change
	suspects  int                     // guarded by mu; number of endpoints with failures

	// leaving are the removed endpoints that have young connections.
	leaving map[netip.AddrPort]*endpoint // guarded by mu
	retired bool                         // guarded by mu; all endpoints count as leaving
	grown   chan struct{}                // guarded by mu; not nil if a caller waits: closed when one of them has no young connections left
}

// An endpoint is a backend and its state.
type endpoint struct {
	at     netip.AddrPort
	name   string // of at, as package net dials it
	target address

	// The fields below are guarded by the mu of its balancer.
	gone     bool
	young    int       // connections being made: picked, and not known to be accepted by the server yet
	failures int       // in a row
	until    time.Time // it is avoided until then, if it has failures
	probing  bool      // one client is trying it again
	refused  time.Time // last time that it refused a packet; zero if it has answered since
}

// A session ties a client to an endpoint.
type session struct {
	client       netip.Addr
	endpoint     *endpoint
	seen         time.Time // when its newest connection was made
	older, newer *session
}

func newBalancer() *balancer {
	b := &balancer{changed: make(chan struct{}), sessions: map[netip.Addr]*session{}, leaving: map[netip.AddrPort]*endpoint{}}
	b.recent.older, b.recent.newer = &b.recent, &b.recent
	return b
}

// set replaces the endpoints, which are ascending. It keeps the state of remaining ones, and
// reports whether anything changed.
func (b *balancer) set(backends []netip.AddrPort, affinity time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.affinity = affinity; affinity == 0 && len(b.sessions) > 0 {
		clear(b.sessions)
		b.recent.older, b.recent.newer = &b.recent, &b.recent
	}
	if slices.EqualFunc(b.endpoints, backends, func(e *endpoint, at netip.AddrPort) bool { return e.at == at }) {
		return false
	}
	// Continue after the endpoint whose turn it was, so that frequent changes do not favour the
	// first ones.
	if len(b.endpoints) > 0 {
		b.next, _ = slices.BinarySearchFunc(backends, b.endpoints[b.next%len(b.endpoints)].at, netip.AddrPort.Compare)
	}
	was := b.endpoints
	b.endpoints = make([]*endpoint, 0, len(backends))
	b.suspects = 0
	for _, at := range backends {
		for len(was) > 0 && was[0].at.Compare(at) < 0 {
			b.leave(was[0])
			was = was[1:]
		}
		var e *endpoint
		switch {
		case len(was) > 0 && was[0].at == at:
			e, was = was[0], was[1:]
		case b.leaving[at] != nil: // it is back, and may be a different process
			e = b.leaving[at]
			delete(b.leaving, at)
			e.gone, e.failures, e.probing, e.refused = false, 0, false, time.Time{}
		default:
			e = &endpoint{at: at, name: at.String(), target: addressOf(at)}
		}
		if e.failures > 0 {
			b.suspects++
		}
		b.endpoints = append(b.endpoints, e)
	}
	for _, e := range was {
		b.leave(e)
	}
	close(b.changed)
	b.changed = make(chan struct{})
	b.wake() // a caller need not wait for an endpoint that is back
	return true
}

// changes returns a channel that is closed when the endpoints change.
func (b *balancer) changes() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// leave removes an endpoint. b.mu is held.
func (b *balancer) leave(e *endpoint) {
	e.gone = true
	if e.young > 0 {
		b.leaving[e.at] = e
	}
}

// retire makes all endpoints count as leaving although they can still be chosen, because no new
// clients come.
func (b *balancer) retire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retired = true
}

// pick returns the endpoint for a connection of a client, or nil if all were tried. A client that
// is tied to an endpoint goes there unless that has failed lately; others go in turn to endpoints
// that have not failed, if there are any.
func (b *balancer) pick(client netip.Addr, now time.Time, tried []*endpoint) *endpoint {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.choose(client, now, tried)
}

// begin is pick for a connection, which is young until [balancer.done] is called, once, with its
// endpoint.
func (b *balancer) begin(client netip.Addr, now time.Time, tried []*endpoint) *endpoint {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.choose(client, now, tried)
	if e != nil {
		e.young++
	}
	return e
}

// choose does the work of pick. b.mu is held.
func (b *balancer) choose(client netip.Addr, now time.Time, tried []*endpoint) *endpoint {
	s := b.sessions[client]
	if s != nil && (s.endpoint.gone || now.Sub(s.seen) >= b.affinity) {
		b.forget(s)
		s = nil
	}
	var e *endpoint
	if s != nil && !s.endpoint.suspect(now) && !slices.Contains(tried, s.endpoint) {
		e = s.endpoint
	} else if e = b.turn(now, tried); e == nil {
		return nil
	}
	if e.failures > 0 {
		// One client finds out whether it is back; until it has, others go elsewhere.
		e.probing, e.until = true, now.Add(suspicion(e.failures))
	}
	if b.affinity > 0 {
		if s == nil {
			s = b.remember(client, now)
		}
		s.endpoint = e
		b.see(s, now)
	}
	return e
}

// turn returns the endpoint whose turn it is. b.mu is held.
func (b *balancer) turn(now time.Time, tried []*endpoint) *endpoint {
	n := len(b.endpoints)
	if n == 0 {
		return nil
	}
	best := -1
	for i := range n {
		at := (b.next + i) % n
		e := b.endpoints[at]
		if len(tried) > 0 && slices.Contains(tried, e) {
			continue
		}
		if b.suspects == 0 || !e.suspect(now) {
			best = at
			break
		}
		// If all have failed, the one that is avoided for the shortest time.
		if best < 0 || e.until.Before(b.endpoints[best].until) {
			best = at
		}
	}
	if best < 0 {
		return nil
	}
	b.next = (best + 1) % n
	return b.endpoints[best]
}

// suspect reports whether an endpoint is to be avoided. The mu of its balancer is held.
func (e *endpoint) suspect(now time.Time) bool { return e.failures > 0 && now.Before(e.until) }

func suspicion(failures int) time.Duration {
	return min(firstSuspicion<<min(failures-1, 10), maxSuspicion)
}

// failed records that an endpoint did not answer a client, and ends their session.
func (b *balancer) failed(e *endpoint, client netip.Addr, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sessions[client]; s != nil && s.endpoint == e {
		b.forget(s)
	}
	if e.gone || e.failures > 0 && !e.probing {
		return // concurrent connections that fail with the first one count as one failure
	}
	if e.failures++; e.failures == 1 {
		b.suspects++
	}
	e.probing, e.until = false, now.Add(suspicion(e.failures))
}

// refuses records that an endpoint of UDP refused a packet.
func (b *balancer) refuses(e *endpoint, client netip.Addr, now time.Time) {
	b.failed(e, client, now)
	b.mu.Lock()
	defer b.mu.Unlock()
	e.refused = now
}

// The kernel of an endpoint limits its ICMP errors to this node, to one per second for all clients
// (net.ipv4.icmp_ratelimit). A refusal holds for twice as long.
const refusalHolds = 2 * time.Second

// deserted reports whether all endpoints have refused lately, and have not answered since. It
// begins with this one.
func (b *balancer) deserted(e *endpoint, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	receives := func(e *endpoint) bool { return now.Sub(e.refused) >= refusalHolds }
	return !receives(e) && !slices.ContainsFunc(b.endpoints, receives)
}

// answered records that an endpoint accepted a connection.
func (b *balancer) answered(e *endpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.failures == 0 {
		return
	}
	e.refused = time.Time{}
	if e.failures, e.probing = 0, false; !e.gone {
		b.suspects--
	}
}

// done records that a connection to an endpoint is not young any more.
func (b *balancer) done(e *endpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.young--; e.young > 0 {
		return
	}
	if e.gone && b.leaving[e.at] == e {
		delete(b.leaving, e.at)
	}
	if e.gone || b.retired {
		b.wake()
	}
}

// wake wakes the callers that wait for leaving endpoints. b.mu is held.
func (b *balancer) wake() {
	if b.grown != nil {
		close(b.grown)
		b.grown = nil
	}
}

// left returns the removed endpoints that have young connections, and a channel that is closed when
// one of them may have none left.
func (b *balancer) left() ([]*endpoint, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []*endpoint
	for _, e := range b.leaving {
		left = append(left, e)
	}
	for _, e := range b.endpoints {
		if b.retired && e.young > 0 {
			left = append(left, e)
		}
	}
	if len(left) > 0 && b.grown == nil {
		b.grown = make(chan struct{})
	}
	return left, b.grown
}

// has reports whether an endpoint is current.
func (b *balancer) has(e *endpoint) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !e.gone
}

// doubted reports whether an endpoint has failed and not answered since.
func (b *balancer) doubted(e *endpoint) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return e.failures > 0
}

// count returns the number of endpoints.
func (b *balancer) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.endpoints)
}

// remember makes a session. It forgets expired ones, or the oldest if there are too many. b.mu is
// held.
func (b *balancer) remember(client netip.Addr, now time.Time) *session {
	// Checking two per new one suffices to get through all of them eventually, and is fast.
	for range 2 {
		oldest := b.recent.newer
		if oldest == &b.recent || len(b.sessions) < maxClients && now.Sub(oldest.seen) < b.affinity {
			break
		}
		b.forget(oldest)
	}
	s := &session{client: client}
	s.older, s.newer = s, s
	b.sessions[client] = s
	return s
}

// see makes a session the newest. b.mu is held.
func (b *balancer) see(s *session, now time.Time) {
	s.seen = now
	s.older.newer, s.newer.older = s.newer, s.older
	s.older, s.newer = b.recent.older, &b.recent
	s.older.newer, s.newer.older = s, s
}

// forget ends a session. b.mu is held.
func (b *balancer) forget(s *session) {
	s.older.newer, s.newer.older = s.newer, s.older
	delete(b.sessions, s.client)
}
