package conntrack

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
)

// A removal is a server that was removed from a frontend: earlier connections may still wait in its
// accept queue.
type removal struct {
	frontend proxy.Frontend
	backend  netip.AddrPort
	at       time.Time
}

// young is how long a connection may wait in a queue; older ones are not waited for.
const young = time.Second

// removals returns the TCP servers that a change removes.
func removals(was, is *proxy.Rule, now time.Time) (all []removal) {
	if was.Protocol != corev1.ProtocolTCP || was.Relayed {
		return nil
	}
	for _, a := range goneFrom(was, is) {
		all = append(all, removal{was.Frontend, a, now})
	}
	return all
}

// has reports whether a TCP connection to an address was one to p's frontend, and its server p's
// backend.
func (p *removal) has(to, server netip.AddrPort) bool {
	return p.backend == server && p.frontend.Port == to.Port() && (p.frontend.Address == to.Addr() || p.frontend.Address.IsUnspecified())
}

// mayQueue reports whether the server of a connection may not have accepted it yet: everything that
// its host has sent so far, a kernel sends without the server. Counted is true if packets are
// counted now.
func mayQueue(f *flow, counted bool) bool {
	const lastAck, closed = 6, 8 // TCP_CONNTRACK_LAST_ACK, followed by TIME_WAIT and CLOSE
	if f.state >= lastAck && f.state <= closed {
		return false
	}
	if f.sent.packets == 0 {
		return !counted // it was made before packets were counted
	}
	// Packets without data are no longer than this: the SYN-ACK has 40 bytes of TCP.
	bare := uint64(20 + 40)
	if f.to.Addr().Is6() {
		bare = 40 + 40
	}
	return f.answered.bytes <= bare*f.answered.packets
}

// A drain is a removal with the connections that may wait in its server's queue. Rules send the
// server no new ones, so these are found once, and afterwards only they are checked.
type drain struct {
	removal
	found  bool
	queued []flowKey // the connections found
}

// Drains are the recently removed servers, with the connections that they may not have accepted. The
// zero value is ready for use. Settle may be called from any goroutine, the others from one.
type Drains struct {
	mu   sync.Mutex
	all  []*drain  // guarded by mu
	anew time.Time // guarded by mu; when rules replaced others whose servers are not known

	looking sync.Mutex // held while connections are checked, and locked before mu; guards the fields of each drain
	rest    time.Time  // guarded by looking; when all connections may be read next
	conn    *conntrack // guarded by looking; nil except during a look
}

// Add records the TCP servers that changes remove, and deletes the drains of servers that are
// backends again. The kernel must have the changes.
func (l *Drains) Add(changes []proxy.Change, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(p *drain) bool {
		return now.Sub(p.at) > young || slices.ContainsFunc(changes, func(c proxy.Change) bool {
			return c.Is.Frontend == p.frontend && hasBackend(&c.Is, p.backend)
		})
	})
	for i := range changes {
		for _, p := range removals(&changes[i].Was, &changes[i].Is, now) {
			l.all = append(l.all, &drain{removal: p})
		}
	}
}

// Replaced records that rules replaced unknown ones.
func (l *Drains) Replaced(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.anew = now
}

// unknown returns for how long connections to unknown removed servers may be young.
func (l *Drains) unknown(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.anew.Add(young).Sub(now)
}

// list returns the drains that are young enough to wait for.
func (l *Drains) list(now time.Time) []*drain {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(p *drain) bool { return p.old(now) })
	return slices.Clone(l.all)
}

func (p *removal) old(now time.Time) bool { return now.Sub(p.at) >= young }

// Settle is the method of [proxy.Kernel]. It waits until each connection to a server that was made before
// the server's removal is accepted (the server has answered), has ended, or is a second old.
//
// There is no event for that. Settle finds those connections once, for all removed servers, and
// then checks these few from time to time: for a second at most, and only if a TCP server was
// removed. After a Replace it waits for a second.
func (l *Drains) Settle(ctx context.Context) {
	if rest := l.unknown(time.Now()); rest > 0 && !run.Pause(ctx, rest) {
		return
	}
	mine := l.list(time.Now())
	const first, longest = 2 * time.Millisecond, 50 * time.Millisecond
	for pause := first; len(mine) > 0; pause = min(2*pause, longest) {
		var rest time.Duration
		mine, rest = l.look(mine)
		now := time.Now()
		mine = slices.DeleteFunc(mine, func(p *drain) bool { return p.old(now) })
		if len(mine) == 0 {
			return
		}
		last := slices.MaxFunc(mine, func(a, b *drain) int { return a.at.Compare(b.at) })
		if !run.Pause(ctx, min(max(pause, rest), last.at.Add(young).Sub(now))) {
			return
		}
	}
}

// share is the ratio of the pause after reading all connections to the time that reading them took.
const share = 4

// look returns the drains with pending connections, and how long to wait before the next look,
// because it would be useless or too expensive earlier.
func (l *Drains) look(mine []*drain) (left []*drain, rest time.Duration) {
	l.looking.Lock()
	defer l.looking.Unlock()
	defer l.disconnect()
	counted := Accounting() == "1"
	// If connections can't be read, waiting for a second is the fallback.
	if slices.ContainsFunc(mine, func(p *drain) bool { return !p.found }) {
		rest, _ = l.find(counted)
	}
	if slices.ContainsFunc(mine, func(p *drain) bool { return p.found && len(p.queued) > 0 }) {
		start := time.Now()
		_ = l.connected(func(c *conntrack) error { return recheck(c, mine, counted) })
		rest = share * time.Since(start)
	}
	settled := func(p *drain) bool { return p.found && len(p.queued) == 0 }
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, settled)
	return slices.DeleteFunc(mine, settled), rest
}

// find finds the pending connections of all drains, or returns how long to wait before trying again.
func (l *Drains) find(counted bool) (rest time.Duration, err error) {
	start := time.Now()
	if start.Before(l.rest) {
		return l.rest.Sub(start), nil
	}
	all := slices.DeleteFunc(l.list(start), func(p *drain) bool { return p.found })
	awaitPackets()
	err = l.connected(func(c *conntrack) error { return search(c, all, counted) })
	end := time.Now()
	l.rest = end.Add(share * end.Sub(start))
	return 0, err
}

// connected calls f with a connection to conntrack, and closes it after an error.
func (l *Drains) connected(f func(*conntrack) error) (err error) {
	if l.conn == nil {
		if l.conn, err = openConntrack(); err != nil {
			return err
		}
	}
	if err = f(l.conn); err != nil {
		l.disconnect()
	}
	return err
}

func (l *Drains) disconnect() {
	if l.conn != nil {
		l.conn.close()
		l.conn = nil
	}
}

func byServer(all []*drain) map[netip.AddrPort][]*drain {
	by := map[netip.AddrPort][]*drain{}
	for _, p := range all {
		p.queued = nil
		by[p.backend] = append(by[p.backend], p)
	}
	return by
}

// search reads all connections and records the pending ones of these drains.
func search(c *conntrack, all []*drain, counted bool) error {
	by := byServer(all)
	for _, s := range selections(all) {
		if err := c.each(s, func(f *flow) {
			for _, p := range by[f.server] {
				if f.protocol == unix.IPPROTO_TCP && p.has(f.to, f.server) && mayQueue(f, counted) {
					p.queued = append(p.queued, f.key.clone())
				}
			}
		}); err != nil {
			return err
		}
	}
	for _, p := range all {
		p.found = true
	}
	return nil
}

// recheck reads the pending connections again, and drops the ones that no longer wait.
func recheck(c *conntrack, all []*drain, counted bool) error {
	for _, v6 := range []bool{false, true} {
		var keys []flowKey
		var mine []*drain
		for _, p := range all {
			if p.found && p.backend.Addr().Is6() == v6 {
				mine, keys = append(mine, p), append(keys, p.queued...)
			}
		}
		waits := make([]bool, len(keys))
		if err := c.look(v6, keys, func(i int, now *flow) { waits[i] = mayQueue(now, counted) }); err != nil {
			return err
		}
		for _, p := range mine {
			n := len(p.queued)
			p.queued = p.queued[:0]
			for i, key := range keys[:n] {
				if waits[i] {
					p.queued = append(p.queued, key)
				}
			}
			keys, waits = keys[n:], waits[n:]
		}
	}
	return nil
}

// selections returns what to read for removed servers, one for each family: flows that have in common what the servers
// and their frontends have.
func selections(all []*drain) (s []selection) {
	for _, v6 := range []bool{false, true} {
		var backends, frontends []netip.AddrPort
		for _, p := range all {
			if p.backend.Addr().Is6() == v6 {
				backends = append(backends, p.backend)
				frontends = append(frontends, netip.AddrPortFrom(p.frontend.Address, p.frontend.Port))
			}
		}
		if len(backends) > 0 {
			s = append(s, selection{v6, unix.IPPROTO_TCP, common(frontends), common(backends)})
		}
	}
	return s
}
