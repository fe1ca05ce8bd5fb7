package userspace

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// The two sides of a connection, and the directions in which bytes flow: a direction has the number
// of the side that it comes from.
const (
	clientSide = 0
	serverSide = 1
)

// freshLimit is the time after which a connection counts as accepted by the server although that
// has not sent anything: it may be waiting for the client, or be slow to answer.
const freshLimit = time.Second

// A conn is one connection of a client. It belongs to the loop that it was given to.
type conn struct {
	pool     *pool
	client   netip.AddrPort
	endpoint *endpoint // that is being tried, or was found
	fds      [2]int    // -1 for none

	index, generation int32 // slot in the loop

	state   state
	round   int8        // of the search for an endpoint
	young   bool        // as in the balancer
	joined  bool        // the client's socket is registered
	spoke   bool        // bytes were carried
	queued  bool        // it is in l.unfinished
	listed  *ring       // the ring it is in, or nil
	tried   []*endpoint // in this round
	began   time.Time   // when the client connected
	until   time.Time   // end of the round, or of being fresh
	earlier *conn       // in its ring
	later   *conn

	able  [2]ability
	flows [2]direction
}

// An ability is the last state of one side that the kernel reported.
type ability struct {
	read, write bool
	uneven      bool // the stream ends, or is interrupted by urgent data, perhaps after more bytes
	broken      bool
}

// A direction is the progress of bytes in one direction.
type direction struct {
	bulk  bool  // the last transfer was large
	pipe  *pipe // bytes that the other side did not accept; nil if there are none
	ended bool  // no more bytes come
	shut  bool  // the other side was shut down for that
}

type state uint8

const (
	dialing  state = iota // waits for an endpoint to answer
	paused                // waits for other endpoints, or the next round
	carrying              // is connected
	over
)

// A ring is connections in the order in which their waits end.
type ring struct{ first, last *conn }

func (r *ring) push(c *conn) {
	if c.listed, c.earlier, c.later = r, r.last, nil; r.last == nil {
		r.first = c
	} else {
		r.last.later = c
	}
	r.last = c
}

func (r *ring) remove(c *conn) {
	if c.earlier == nil {
		r.first = c.later
	} else {
		c.earlier.later = c.later
	}
	if c.later == nil {
		r.last = c.earlier
	} else {
		c.later.earlier = c.earlier
	}
	c.listed, c.earlier, c.later = nil, nil, nil
}

// serve begins to carry a connection, and owns its socket from then on. It may be called from any
// goroutine.
func (p *pool) serve(in int, client netip.AddrPort, now time.Time) {
	p.count.connections.Add(1)
	if !p.admit() {
		p.count.refused.Add(1)
		reset(in)
		return
	}
	c := &conn{pool: p, client: client, fds: [2]int{in, -1}, began: now, until: now.Add(p.f.opts.DialTimeouts[0])}
	seen := p.changes.Load()
	c.dial(now)
	l, waits := p.f.anyLoop(), c.state == paused
	if c.state == over || !l.adopt(c) {
		c.abandon()
		p.count.refused.Add(1)
		reset(in)
		p.release()
		return
	}
	if waits && p.changes.Load() != seen {
		l.ask(func() { l.tryAgain(p) }) // a concurrent change did not find it
	}
}

// adopt makes the loop the owner of a connection that is dialing or paused. It returns false if it
// can't.
func (l *loop) adopt(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return false
	}
	c.index = l.place(c)
	c.generation = l.slots[c.index].generation
	if c.state == dialing {
		// Before registration there is no event, and the loop does not touch it.
		if l.register(c.index, c.generation, serverSide, c.fds[serverSide]) != nil {
			l.leaveLocked(c.index)
			return false
		}
	}
	l.rounds[0].push(c)
	l.arm(c.until)
	return true
}

// dial chooses an endpoint and begins to connect to it. Then the connection is dialing; or paused
// if all endpoints were tried in this round; or closed if there are none.
func (c *conn) dial(now time.Time) {
	p := c.pool
	for {
		if c.state == paused {
			p.paused.Add(-1)
		}
		e := p.balancer.begin(c.client.Addr(), now, c.tried)
		if e == nil {
			if c.state = over; p.balancer.count() > 0 {
				c.state = paused
				p.paused.Add(1)
			}
			return
		}
		c.state = dialing
		if c.round > 0 || len(c.tried) > 0 {
			p.count.retries.Add(1)
		}
		fd, errno, ours := p.connect(e, c.client)
		if errno == 0 {
			c.endpoint, c.fds[serverSide], c.young = e, fd, true
			return
		}
		p.balancer.done(e)
		p.count.failures.Add(1)
		if ours {
			p.warn("connecting to a backend of a service", errno)
			c.state = over
			return
		}
		if errno != unix.EADDRNOTAVAIL { // that is about our ports
			p.balancer.failed(e, c.client.Addr(), now)
		}
		c.tried = append(c.tried, e)
	}
}

// connect begins a connection to an endpoint. Ours is true if it failed for a reason that has
// nothing to do with the endpoint.
func (p *pool) connect(e *endpoint, client netip.AddrPort) (fd int, errno unix.Errno, ours bool) {
	fd, errno = p.socketTo(e, unix.SOCK_STREAM, client)
	if errno != 0 {
		return -1, errno, true
	}
	// Small writes are passed on without delay.
	set(fd, unix.SOL_TCP, unix.TCP_NODELAY, 1)
	if errno = p.connectTo(fd, e); errno != 0 && errno != unix.EINPROGRESS {
		_ = unix.Close(fd)
		return -1, errno, errno == unix.ENOBUFS || errno == unix.ENOMEM
	}
	return fd, 0, false
}

// ready implements handler.
func (c *conn) ready(l *loop, side int, events uint32) {
	if side == serverSide && c.state == dialing {
		switch {
		case events&(unix.EPOLLERR|unix.EPOLLHUP) != 0:
			c.failed(l)
		case events&unix.EPOLLOUT != 0:
			// The server may have sent everything already, which makes no further event.
			c.able[serverSide].uneven = events&uneven != 0
			c.connected(l)
		}
		return
	}
	if side == serverSide && c.state != carrying {
		return // of a former socket
	}
	a := &c.able[side]
	a.read = a.read || events&canRead != 0
	a.write = a.write || events&canWrite != 0
	a.uneven = a.uneven || events&uneven != 0
	a.broken = a.broken || events&unix.EPOLLERR != 0
	switch {
	case c.state == carrying:
		c.carry(l)
	case a.broken:
		c.end(l, reset)
	}
}

// connected continues after an endpoint has answered.
func (c *conn) connected(l *loop) {
	p := c.pool
	p.balancer.answered(c.endpoint)
	p.count.dials.observe(l.now.Sub(c.began))
	l.delist(c)
	c.state, c.tried = carrying, nil
	for side := range c.able {
		c.able[side].read, c.able[side].write = true, true // until the kernel says otherwise
	}
	c.until = l.now.Add(freshLimit)
	if l.fresh.push(c); l.fresh.first == c {
		l.armAt(c.until)
	}
	if !c.joined && l.register(c.index, c.generation, clientSide, c.fds[clientSide]) != nil || !p.introduce(c) {
		c.end(l, reset)
		return
	}
	c.joined = true
	c.carry(l)
}

// failed tries the next endpoint after one did not accept the connection.
func (c *conn) failed(l *loop) {
	p := c.pool
	p.count.failures.Add(1)
	p.balancer.failed(c.endpoint, c.client.Addr(), l.now)
	c.tried = append(c.tried, c.endpoint)
	c.abandon()
	c.again(l)
}

// abandon gives up the endpoint.
func (c *conn) abandon() {
	if c.young {
		c.young = false
		c.pool.balancer.done(c.endpoint)
	}
	if c.fds[serverSide] >= 0 {
		_ = unix.Close(c.fds[serverSide])
		c.fds[serverSide] = -1
	}
	if c.state == paused {
		c.state = over
		c.pool.paused.Add(-1)
	}
	c.endpoint = nil
	c.able[serverSide] = ability{}
}

// again tries another endpoint, or ends the connection if there are none.
func (c *conn) again(l *loop) {
	c.dial(l.now)
	if c.state == dialing && l.register(c.index, c.generation, serverSide, c.fds[serverSide]) != nil {
		c.state = over
	}
	if c.state == over {
		c.refuse(l)
	}
}

// roundIsOver begins the next round, which gives endpoints more time to answer.
func (c *conn) roundIsOver(l *loop) {
	l.delist(c)
	if c.state == dialing {
		c.pool.count.failures.Add(1)
		c.pool.balancer.failed(c.endpoint, c.client.Addr(), l.now)
		c.abandon()
	}
	timeouts := c.pool.f.opts.DialTimeouts
	if c.round++; int(c.round) == len(timeouts) {
		c.refuse(l)
		return
	}
	c.tried = c.tried[:0]
	c.until = l.now.Add(timeouts[c.round])
	l.enlist(c)
	c.again(l)
}

// refuse ends a connection for which there is no endpoint.
func (c *conn) refuse(l *loop) {
	c.pool.count.refused.Add(1)
	// A reset means that nothing was carried; a close would look like an empty answer.
	c.end(l, reset)
}

// enlist has the loop call roundIsOver at the end of a connection's round.
func (l *loop) enlist(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rounds[c.round].push(c)
	l.arm(c.until)
}

// delist removes a connection from the ring it is in.
func (l *loop) delist(c *conn) {
	switch c.listed {
	case nil:
	case &l.fresh:
		l.fresh.remove(c)
	default:
		l.mu.Lock()
		defer l.mu.Unlock()
		c.listed.remove(c)
	}
}

// tryAgain has connections that wait for other endpoints of a pool try the current ones.
func (l *loop) tryAgain(p *pool) {
	var waiting []*conn
	l.mu.Lock()
	for i := range l.rounds {
		for c := l.rounds[i].first; c != nil; c = c.later {
			if c.pool == p {
				waiting = append(waiting, c)
			}
		}
	}
	l.mu.Unlock()
	for _, c := range waiting {
		if c.state == paused {
			c.again(l)
		}
	}
}

// growUp settles connections that are not fresh any more.
func (l *loop) growUp() {
	for c := l.fresh.first; c != nil && !l.now.Before(c.until); c = l.fresh.first {
		l.fresh.remove(c)
		c.settled()
		// Most connections end before, and save these calls.
		keepAlive(c.fds[serverSide])
	}
}

// settled records that the server has accepted the connection.
func (c *conn) settled() {
	if c.young {
		c.young = false
		c.pool.balancer.done(c.endpoint)
	}
}

// keepAlive detects within a few minutes that the other side is unreachable. It sets what package
// net sets.
func keepAlive(fd int) {
	set(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	set(fd, unix.SOL_TCP, unix.TCP_KEEPIDLE, 15)
	set(fd, unix.SOL_TCP, unix.TCP_KEEPINTVL, 15)
	set(fd, unix.SOL_TCP, unix.TCP_KEEPCNT, 9)
}

// carry moves what can be moved in both directions.
func (c *conn) carry(l *loop) {
	if c.state != carrying {
		return // it ended while it was queued
	}
	for side := range c.flows {
		switch broken := c.pump(l, side); {
		case broken == serverSide && !c.spoke && c.flows[serverSide].pipe == nil && !c.flows[serverSide].ended:
			c.elsewhere(l)
			return
		case broken != neither:
			c.end(l, reset)
			return
		}
	}
	if c.flows[clientSide].shut && c.flows[serverSide].shut {
		c.end(l, closeSocket)
		return
	}
	for side := range c.able {
		// Bytes before the error are carried first.
		if a := &c.able[side]; a.broken && (c.flows[side].ended || !a.read) && c.flows[side].pipe == nil {
			c.end(l, reset)
			return
		}
	}
}

// elsewhere resumes the search for an endpoint after a server broke the connection before anything
// was carried: it may have been about to stop, and another one will do.
func (c *conn) elsewhere(l *loop) {
	l.delist(c)
	p := c.pool
	p.count.failures.Add(1)
	p.balancer.failed(c.endpoint, c.client.Addr(), l.now)
	c.tried = append(c.tried, c.endpoint)
	c.abandon()
	c.flows[clientSide].shut = false // the client's end of stream is for the next one
	c.state = paused
	p.paused.Add(1)
	c.until = l.now.Add(l.f.opts.DialTimeouts[c.round])
	l.enlist(c)
	// Later, because an event of the broken socket may be pending.
	l.ask(func() {
		if c.state == paused {
			c.again(l)
		}
	})
}

// turns is how often a direction moves bytes before others have their turn.
const turns = 16

// neither stands for no side.
const neither = -1

// pump moves what can be moved in one direction, and returns which side is broken.
func (c *conn) pump(l *loop, side int) (broken int) {
	from, to := side, 1-side
	d := &c.flows[side]
	moved := 0
	defer func() {
		if moved > 0 {
			c.spoke = true
			c.pool.count.bytes[side].Add(uint64(moved))
		}
	}()
	for range turns {
		if d.pipe == nil && d.ended {
			if !d.shut {
				d.shut = true
				_ = unix.Shutdown(c.fds[to], unix.SHUT_WR)
			}
			return neither
		}
		if !c.able[to].write {
			return neither
		}
		if d.pipe == nil {
			if !c.able[from].read {
				return neither
			}
			p := l.takePipe()
			if p == nil {
				n, broken := c.bounce(l, side)
				if moved += n; broken != neither {
					return broken
				}
				continue
			}
			if d.pipe = p; !d.bulk {
				n, broken := c.copyLittle(l, side)
				if moved += n; broken != neither {
					return broken
				}
				continue
			}
			n, errno := splice(c.fds[from], p.write, pipeSize)
			if p.held = max(n, 0); p.held == 0 {
				l.givePipe(p)
				d.pipe = nil
			}
			switch {
			case errno == unix.EAGAIN:
				c.able[from].read = false
				return neither
			case errno != 0:
				return from
			case from == serverSide:
				c.settled()
			}
			if n == 0 {
				d.ended = true
				continue
			}
			d.bulk = n >= little
		}
		n, errno := splice(d.pipe.read, c.fds[to], d.pipe.held)
		switch {
		case errno == unix.EAGAIN:
			c.able[to].write = false
			return neither
		case errno != 0:
			return to
		}
		moved += n
		if d.pipe.held -= n; d.pipe.held == 0 {
			l.givePipe(d.pipe)
			d.pipe = nil
		}
	}
	if !c.queued {
		c.queued = true
		l.unfinished = append(l.unfinished, c)
	}
	return neither
}

// little is the number of bytes up to which they are copied through memory: for short messages this
// is faster than a pipe, and needs no call to find that there are no more.
const little = 16 << 10

// copyLittle moves bytes in one direction, which has an empty pipe for what the other side does not
// accept.
func (c *conn) copyLittle(l *loop, side int) (moved, broken int) {
	d, from, to := &c.flows[side], side, 1-side
	defer func() {
		if d.pipe.held == 0 {
			l.givePipe(d.pipe)
			d.pipe = nil
		}
	}()
	buf := l.buffer()[:little]
	n, errno := receive(c.fds[from], buf, 0)
	switch {
	case errno == unix.EAGAIN:
		c.able[from].read = false
		return 0, neither
	case errno != 0:
		return 0, from
	case from == serverSide:
		c.settled()
	}
	if n == 0 {
		d.ended = true
		return 0, neither
	}
	if d.bulk = n == len(buf); !d.bulk && !c.able[from].uneven {
		c.able[from].read = false // no more bytes: others would be a new event
	}
	broken = neither
	moved, errno = send(c.fds[to], buf[:n])
	switch {
	case errno == unix.EAGAIN:
		c.able[to].write = false
	case errno != 0:
		moved, broken = 0, to // the bytes are kept: they may be for another endpoint
	}
	if moved < n {
		// The pipe is large enough for all of it.
		held, err := unix.Write(d.pipe.write, buf[moved:n])
		if d.pipe.held = max(held, 0); err != nil || held < n-moved {
			c.spoke = true // a part is lost
			return moved, to
		}
	}
	return moved, broken
}

// bounce moves bytes without a pipe: it reads from one side only as much as the other accepted.
func (c *conn) bounce(l *loop, side int) (moved, broken int) {
	from, to := c.fds[side], c.fds[1-side]
	buf := l.buffer()
	n, errno := receive(from, buf, unix.MSG_PEEK)
	switch {
	case errno == unix.EAGAIN:
		c.able[side].read = false
		return 0, neither
	case errno != 0:
		return 0, side
	case side == serverSide:
		c.settled()
	}
	if n == 0 {
		c.flows[side].ended = true
		return 0, neither
	}
	moved, errno = send(to, buf[:n])
	switch {
	case errno == unix.EAGAIN:
		c.able[1-side].write = false
		return 0, neither
	case errno != 0:
		return 0, 1 - side
	}
	if _, errno := receive(from, buf[:moved], unix.MSG_TRUNC); errno != 0 {
		return moved, side
	}
	return moved, neither
}

func closeSocket(fd int) { _ = unix.Close(fd) }

// end closes both sockets, each by the given function.
func (c *conn) end(l *loop, shut func(fd int)) {
	l.delist(c)
	c.settled()
	if c.state == paused {
		c.pool.paused.Add(-1)
	}
	c.state = over
	for side := range c.flows {
		if p := c.flows[side].pipe; p != nil {
			l.givePipe(p)
			c.flows[side].pipe = nil
		}
	}
	for _, fd := range c.fds {
		if fd >= 0 {
			shut(fd)
		}
	}
	l.leave(c.index)
	c.pool.release()
}

// close implements handler: for the clients of unfinished connections it is a reset.
func (c *conn) close(l *loop) { c.end(l, reset) }
