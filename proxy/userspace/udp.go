package userspace

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A relay is the socket of a pool of UDP, and its flows. All of it belongs to one loop.
type relay struct {
	pool  *pool
	loop  *loop
	index int32 // slot in the loop

	flows  map[netip.AddrPort]*flow // by client
	recent flow                     // ring of the flows, from the one that is silent the longest

	mu     sync.Mutex
	fd     int  // guarded by mu
	closed bool // guarded by mu
}

// A flow is a client and the socket through which its packets go to an endpoint and come
// back from there.
type flow struct {
	relay        *relay
	client       netip.AddrPort
	endpoint     *endpoint
	fd           int
	index        int32 // slot in the loop
	seen         time.Time
	checked      uint64 // the change of backends after which the endpoint was known to be one
	older, newer *flow
}

// A flow that was used so lately is not ended to make room for another: the packets of that
// are dropped instead.
const busyFlow = time.Second

// A socket that has more than batchesAtOnce has its next turn after the others.
const batchesAtOnce = 8

func newRelay(p *pool, l *loop, fd int) *relay {
	r := &relay{pool: p, loop: l, fd: fd, flows: map[netip.AddrPort]*flow{}}
	r.recent.older, r.recent.newer = &r.recent, &r.recent
	return r
}

// ready implements handler.
func (r *relay) ready(l *loop, _ int, _ uint32) {
	b := l.packets()
	for range batchesAtOnce {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return
		}
		n, errno := b.receive(r.fd, true)
		r.mu.Unlock()
		for first := 0; first < n; {
			// Packets of one client that come together go on together.
			client := b.names[first].addrPort()
			end := first + 1
			for end < n && b.names[end].addrPort() == client {
				end++
			}
			r.forward(l, client, first, end)
			first = end
		}
		if errno != 0 || n < batchSize {
			return // that was all, and more would be another event
		}
	}
	l.ask(func() { r.ready(l, 0, canRead) })
}

// forward sends packets of a client to its endpoint. Those that it can't send are dropped, as
// UDP allows.
func (r *relay) forward(l *loop, client netip.AddrPort, first, end int) {
	fl, changes := r.flows[client], r.pool.changes.Load()
	if fl != nil && fl.checked != changes {
		if fl.checked = changes; !r.pool.balancer.has(fl.endpoint) {
			fl.end(l) // before prune came to it
			fl = nil
		}
	}
	if fl == nil {
		if fl = r.begin(l, client); fl == nil {
			r.pool.count.dropped.Add(uint64(end - first))
			return
		}
	}
	r.see(fl, l.now)
	moved := false
	for first < end {
		n, errno := l.batch.send(fl.fd, first, end, nil)
		if n > 0 {
			r.pool.count.bytes[clientSide].Add(uint64(l.batch.bytes(first, first+n)))
			first += n
		}
		switch {
		case errno == 0 && n > 0:
		case refusal(errno) && !moved:
			// It is about packets before this one, which may still reach another.
			if moved = true; !fl.move(l) {
				r.pool.count.dropped.Add(uint64(end - first))
				return
			}
		default:
			r.pool.count.dropped.Add(uint64(end - first))
			return
		}
	}
}

// refusal reports whether an error says that nobody receives at an endpoint.
func refusal(errno unix.Errno) bool {
	switch errno {
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN:
		return true
	default:
		return false
	}
}

// begin makes a flow, or returns nil if there can't be one.
func (r *relay) begin(l *loop, client netip.AddrPort) *flow {
	p := r.pool
	p.count.connections.Add(1)
	oldest := r.recent.newer
	if len(r.flows) >= p.f.opts.MaxFlows && !r.makeRoom(l, oldest) {
		p.count.refused.Add(1)
		return nil
	}
	for !p.f.take(1) {
		if oldest = r.recent.newer; !r.makeRoom(l, oldest) {
			p.count.refused.Add(1)
			return nil
		}
	}
	fl := &flow{relay: r, client: client, fd: -1, seen: l.now, checked: p.changes.Load()}
	fl.older, fl.newer = fl, fl
	if !fl.open(l) {
		if fl.fd >= 0 {
			_ = unix.Close(fl.fd)
		}
		p.f.give(1)
		p.count.refused.Add(1)
		return nil
	}
	p.count.open.Add(1)
	r.flows[client] = fl
	if len(r.flows) == 1 {
		l.relays[r] = true
	}
	if l.sweep.IsZero() {
		l.sweep = l.now.Add(r.pool.f.opts.IdleTimeout)
		l.armAt(l.sweep)
	}
	return fl
}

// makeRoom ends a flow if it has been silent for a moment, or reports false.
func (r *relay) makeRoom(l *loop, oldest *flow) bool {
	if oldest == &r.recent || l.now.Sub(oldest.seen) < busyFlow {
		return false
	}
	oldest.end(l)
	return true
}

// open makes the socket of a flow to an endpoint. It reports false if that can't be done.
func (fl *flow) open(l *loop) bool {
	p := fl.relay.pool
	e := p.balancer.pick(fl.client.Addr(), l.now, nil)
	if e == nil {
		return false
	}
	var errno unix.Errno
	if fl.fd, errno = p.socketTo(e, unix.SOCK_DGRAM, fl.client); errno == 0 {
		fl.endpoint = e
		if errno = p.connectTo(fl.fd, e); refusal(errno) && fl.move(l) {
			errno = 0
		}
	}
	err := asError(errno)
	if err == nil {
		fl.index, err = l.watch(fl, fl.fd)
	}
	if err != nil {
		p.warn("opening a flow to a backend", err)
	}
	return err == nil
}

// move connects a flow to another endpoint, because the one that it has refuses. It
// reports false if there is none.
func (fl *flow) move(l *loop) bool {
	p := fl.relay.pool
	var tried []*endpoint
	for {
		p.count.failures.Add(1)
		p.balancer.failed(fl.endpoint, fl.client.Addr(), l.now)
		tried = append(tried, fl.endpoint)
		e := p.balancer.pick(fl.client.Addr(), l.now, tried)
		if e == nil {
			// It goes on with this one: it may be back for the next packet.
			return p.balancer.has(fl.endpoint)
		}
		p.count.retries.Add(1)
		fl.endpoint = e
		if p.connectTo(fl.fd, e) == 0 {
			return true
		}
	}
}

// ready implements handler.
func (fl *flow) ready(l *loop, _ int, events uint32) {
	r, b := fl.relay, l.packets()
	to := addressOf(fl.client)
	for range batchesAtOnce {
		n, errno := b.receive(fl.fd, false)
		if n > 0 {
			r.see(fl, l.now)
			r.pool.balancer.answered(fl.endpoint)
			r.reply(l, &to, n)
		}
		switch {
		case errno == unix.EAGAIN:
			return
		case refusal(errno):
			if !fl.move(l) {
				fl.end(l)
				return
			}
		case errno != 0:
			fl.end(l)
			return
		case n < batchSize && events&unix.EPOLLERR == 0:
			return // that was all, and more would be another event
		}
	}
	l.ask(func() {
		if fl.fd >= 0 {
			fl.ready(l, 0, events)
		}
	})
}

// reply sends packets to a client, from the address that it sent its own to.
func (r *relay) reply(l *loop, to *address, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	sent, _ := l.batch.send(r.fd, 0, n, to)
	r.pool.count.bytes[serverSide].Add(uint64(l.batch.bytes(0, sent)))
	r.pool.count.dropped.Add(uint64(n - sent))
}

// see makes a flow the one that was used last.
func (r *relay) see(fl *flow, now time.Time) {
	fl.seen = now
	fl.older.newer, fl.newer.older = fl.newer, fl.older
	fl.older, fl.newer = r.recent.older, &r.recent
	fl.older.newer, fl.newer.older = fl, fl
}

// end closes the socket of a flow and forgets it.
func (fl *flow) end(l *loop) {
	r := fl.relay
	fl.older.newer, fl.newer.older = fl.newer, fl.older
	if delete(r.flows, fl.client); len(r.flows) == 0 {
		delete(l.relays, r)
	}
	_ = unix.Close(fl.fd)
	fl.fd = -1
	l.leave(fl.index)
	r.pool.count.open.Add(-1)
	r.pool.f.give(1)
}

// close implements handler.
func (fl *flow) close(l *loop) { fl.end(l) }

// sweepFlows ends the flows that have been silent for too long.
func (l *loop) sweepFlows() {
	idle := l.f.opts.IdleTimeout
	l.sweep = time.Time{}
	for r := range l.relays {
		for fl := r.recent.newer; fl != &r.recent; fl = r.recent.newer {
			if over := fl.seen.Add(idle); l.now.Before(over) {
				if l.sweep.IsZero() || over.Before(l.sweep) {
					l.sweep = over
				}
				break
			}
			fl.end(l)
		}
	}
	// Flows that end one after the other share a look.
	if soon := l.now.Add(idle / 64); !l.sweep.IsZero() && l.sweep.Before(soon) {
		l.sweep = soon
	}
}

// prune ends the flows to what are no endpoints any more. It is called by the loop.
func (r *relay) prune() {
	for fl := r.recent.newer; fl != &r.recent; {
		next := fl.newer
		if !r.pool.balancer.has(fl.endpoint) {
			fl.end(r.loop)
		}
		fl = next
	}
}

// stop closes the socket and ends the flows.
func (r *relay) stop() {
	if !r.shut() {
		return
	}
	r.loop.leave(r.index)
	r.pool.f.give(1)
	r.loop.ask(func() {
		for fl := r.recent.newer; fl != &r.recent; fl = r.recent.newer {
			fl.end(r.loop)
		}
	})
}

// shut closes the socket and reports whether it was open.
func (r *relay) shut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.closed = true
	_ = unix.Close(r.fd)
	return true
}

// close implements handler.
func (r *relay) close(*loop) { r.shut() }
