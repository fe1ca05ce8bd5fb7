package userspace

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A relay is the socket of a UDP pool, and its flows. It belongs to one loop.
type relay struct {
	pool  *pool
	loop  *loop
	index int32 // slot in the loop

	refuser *refuser // nil if this process can't send ICMP errors

	flows  map[netip.AddrPort]*flow // by client
	recent flow                     // ring of the flows; the one that is silent longest is first

	mu     sync.Mutex
	fd     int  // guarded by mu
	closed bool // guarded by mu
}

// A flow is a client and the socket that carries its packets to an endpoint and back.
type flow struct {
	relay        *relay
	client       netip.AddrPort
	endpoint     *endpoint
	fd           int   // -1 if there is none
	index        int32 // slot in the loop
	seen         time.Time
	checked      uint64 // the change of backends after which the endpoint was known to be one
	older, newer *flow

	// Since an endpoint sent something, or the client got an ICMP error:
	unanswered int         // packets that went to an endpoint
	size       int         // of the last one of them
	tried      []*endpoint // endpoints that refused

	answered bool // and no endpoint has refused since
	refused  bool // the client got an ICMP error, and nothing has been received since
	early    bool // the client got an ICMP error for the last packet before that was refused
}

// A flow that was used within busyFlow is not ended to make room for a new one; packets of the new
// one are dropped instead.
const busyFlow = time.Second

// After batchesAtOnce batches other sockets have their turn.
const batchesAtOnce = 8

func newRelay(p *pool, l *loop, fd int) *relay {
	r := &relay{pool: p, loop: l, fd: fd, flows: map[netip.AddrPort]*flow{}}
	r.recent.older, r.recent.newer = &r.recent, &r.recent
	return r
}

// ready implements handler.
func (r *relay) ready(l *loop, _ uint32) {
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
			// Consecutive packets of one client are sent together.
			client := b.names[first].addrPort()
			end := first + 1
			for end < n && b.names[end].addrPort() == client {
				end++
			}
			r.forward(l, client, first, end)
			first = end
		}
		if errno != 0 || n < batchSize {
			return // no more packets: others would be a new event
		}
	}
	l.ask(func() { r.ready(l, canRead) })
}

// forward sends packets of a client to its endpoint. It drops packets that it can't send, as UDP
// allows.
func (r *relay) forward(l *loop, client netip.AddrPort, first, end int) {
	fl, changes := r.flows[client], r.pool.changes.Load()
	if fl != nil && fl.checked != changes {
		if fl.checked = changes; !r.pool.balancer.has(fl.endpoint) {
			fl.end(l) // before prune came to it
			fl = nil
		}
	}
	if fl == nil {
		var none bool
		if fl, none = r.begin(l, client); fl == nil {
			r.pool.count.dropped.Add(uint64(end - first))
			if none {
				packet := l.batch.payload(first)
				r.refuse(l, client, packet, len(packet))
			}
			return
		}
	}
	r.see(fl, l.now)
	for tries := 0; first < end; {
		n, errno := l.batch.send(fl.fd, first, end, nil)
		if n > 0 {
			r.pool.count.bytes[clientSide].Add(uint64(l.batch.bytes(first, first+n)))
			first += n
			fl.unanswered, fl.size = fl.unanswered+n, int(l.batch.messages[first-1].length)
			if fl.early = !fl.answered && r.pool.balancer.deserted(fl.endpoint, l.now); fl.early {
				fl.refuse(l, l.batch.payload(first-1))
			}
			continue
		}
		// An error may be about packets before this one, which may still be sent.
		if tries++; tries > mostRefusals || errno == unix.EAGAIN || !fl.readErrors(l, errno) {
			r.pool.count.dropped.Add(uint64(end - first))
			return
		}
	}
}

// refusal reports whether an error means that the endpoint's port is unreachable.
func refusal(errno unix.Errno) bool {
	switch errno {
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.EACCES:
		return true
	default:
		return false
	}
}

// begin makes a flow, or returns nil if it can't; none is true if no endpoint receives.
func (r *relay) begin(l *loop, client netip.AddrPort) (fl *flow, none bool) {
	p := r.pool
	p.count.connections.Add(1)
	oldest := r.recent.newer
	if len(r.flows) >= p.f.opts.MaxFlows && !r.makeRoom(l, oldest) {
		p.count.refused.Add(1)
		return nil, false
	}
	for !p.f.take(1) {
		if oldest = r.recent.newer; !r.makeRoom(l, oldest) {
			p.count.refused.Add(1)
			return nil, false
		}
	}
	fl = &flow{relay: r, client: client, fd: -1, seen: l.now, checked: p.changes.Load()}
	fl.older, fl.newer = fl, fl
	e := p.balancer.pick(client.Addr(), l.now, nil)
	errno := unix.ECONNREFUSED
	for e != nil {
		if errno = fl.connect(l, e); !refusal(errno) {
			break
		}
		e = fl.next(l)
	}
	if errno != 0 {
		p.f.give(1)
		p.count.refused.Add(1)
		return nil, refusal(errno)
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
	return fl, false
}

// makeRoom ends a flow if it has been silent for a moment, and reports whether it did.
func (r *relay) makeRoom(l *loop, oldest *flow) bool {
	if oldest == &r.recent || l.now.Sub(oldest.seen) < busyFlow {
		return false
	}
	oldest.end(l)
	return true
}

// connect replaces the socket of a flow by one to an endpoint. Later errors of packets to the old
// endpoint are ignored. On success the flow has this endpoint; on error it has no socket.
func (fl *flow) connect(l *loop, e *endpoint) unix.Errno {
	p := fl.relay.pool
	fl.hangUp(l)
	fl.endpoint = e
	fd, errno := p.socketTo(e, fl.client)
	if errno == 0 {
		errno = enableErrors(fd, e.at.Addr())
	}
	if errno == 0 {
		if errno = unix.ECONNREFUSED; !p.isOwn(e) {
			errno = connect(fd, &e.target)
		}
	}
	if errno == 0 {
		var err error
		if fl.index, err = l.watch(fl, fd); err != nil {
			errno = unix.ENOMEM // or the loop has ended
		}
	}
	if errno != 0 {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		if !refusal(errno) {
			p.warn("opening a flow to a backend", errno)
		}
		return errno
	}
	fl.fd = fd
	return 0
}

// hangUp closes the socket of a flow, if it has one.
func (fl *flow) hangUp(l *loop) {
	if fl.fd >= 0 {
		_ = unix.Close(fl.fd)
		fl.fd = -1
		l.leave(fl.index)
	}
}

// mostRefusals is the number of endpoints that a packet is sent to in turn. Endpoints that refuse
// are avoided afterwards, so a packet rarely meets as many.
const mostRefusals = 8

// next records that the endpoint of a flow refused, and returns another one, or nil if all
// endpoints refused since something was received.
func (fl *flow) next(l *loop) *endpoint {
	p := fl.relay.pool
	p.count.failures.Add(1)
	p.balancer.refuses(fl.endpoint, fl.client.Addr(), l.now)
	fl.answered = false
	if fl.tried = append(fl.tried, fl.endpoint); len(fl.tried) >= mostRefusals {
		return nil
	}
	e := p.balancer.pick(fl.client.Addr(), l.now, fl.tried)
	if e != nil {
		p.count.retries.Add(1)
	}
	return e
}

// move moves a flow from an endpoint that refuses to another one, with the packet if it is known.
// If all have refused, or the only one left is in doubt and would not get the packet, the client
// gets an ICMP error. It returns false if the flow has ended.
func (fl *flow) move(l *loop, packet []byte, known bool) bool {
	p := fl.relay.pool
	for e := fl.next(l); e != nil; e = fl.next(l) {
		doubted := p.balancer.doubted(e)
		errno := fl.connect(l, e)
		switch {
		case errno == 0 && known:
			errno, _ = errors.AsType[unix.Errno](unix.Send(fl.fd, packet, unix.MSG_DONTWAIT))
			if !refusal(errno) {
				return true
			}
		case errno == 0:
			p.count.dropped.Add(1)
			if doubted {
				fl.refuseOnce(l, packet)
			}
			return true
		case !refusal(errno):
			fl.end(l)
			return false
		}
	}
	fl.refuseOnce(l, packet)
	// It keeps the last one, which may be back for the next packet.
	if fl.fd < 0 || !p.balancer.has(fl.endpoint) {
		fl.end(l)
		return false
	}
	return true
}

// refuseOnce sends the client an ICMP error for a packet, unless it has got one already.
func (fl *flow) refuseOnce(l *loop, packet []byte) {
	fl.relay.pool.count.dropped.Add(1)
	if !fl.early {
		fl.refuse(l, packet)
	}
	fl.unanswered, fl.tried, fl.early = 0, nil, false
}

// refuse sends the client an ICMP error.
func (fl *flow) refuse(l *loop, packet []byte) {
	r := fl.relay
	if !fl.refused {
		fl.refused = true
		r.pool.count.refused.Add(1)
	}
	r.refuse(l, fl.client, packet, fl.size)
}

// refuse sends a client an ICMP error for its packet, if this process may.
func (r *relay) refuse(l *loop, client netip.AddrPort, payload []byte, size int) {
	if r.refuser != nil {
		r.refuser.refuse(client, r.pool.at, payload, size, l.now)
	}
}

// readErrors handles the errors of packets of a flow, after an error of its socket. It returns
// false if the flow has ended.
func (fl *flow) readErrors(l *loop, errno unix.Errno) bool {
	found := false
	for at := fl.endpoint; fl.endpoint == at; found = true { // another one has another socket
		packet, why, ok := receiveError(fl.fd, l.buffer())
		if !ok {
			break
		}
		if !refusal(why) {
			continue // the packet was too large for the path; the client learns that by itself
		}
		// The quote is all of the packet if it is the only one and has its size.
		known := fl.unanswered == 1 && len(packet) == fl.size
		if !known {
			packet = nil
		}
		if !fl.move(l, packet, known) {
			return false
		}
	}
	switch {
	case found:
		return true
	case refusal(errno):
		return fl.move(l, nil, false)
	case errno == unix.EMSGSIZE, errno == unix.EPERM, exhausted(errno):
		return true
	}
	fl.end(l)
	return false
}

// ready implements handler.
func (fl *flow) ready(l *loop, events uint32) {
	r, b := fl.relay, l.packets()
	to := addressOf(fl.client)
	for range batchesAtOnce {
		n, errno := b.receive(fl.fd, false)
		if n > 0 {
			r.see(fl, l.now)
			r.pool.balancer.answered(fl.endpoint)
			fl.unanswered, fl.tried, fl.answered, fl.refused = 0, nil, true, false
			r.reply(l, &to, n)
		}
		switch {
		case errno == unix.EAGAIN:
			return
		case errno != 0:
			if !fl.readErrors(l, errno) {
				return
			}
		case n < batchSize && events&unix.EPOLLERR == 0:
			return // no more packets: others would be a new event
		}
	}
	l.ask(func() {
		if fl.fd >= 0 {
			fl.ready(l, events)
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

// see makes a flow the most recently used one.
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
	fl.hangUp(l)
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
	// Flows that end at about the same time share one sweep.
	if soon := l.now.Add(idle / 64); !l.sweep.IsZero() && l.sweep.Before(soon) {
		l.sweep = soon
	}
}

// prune ends the flows to former endpoints. It is called by the loop.
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
