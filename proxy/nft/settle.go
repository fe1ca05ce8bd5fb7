package nft

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
)

// A removal is a server that was taken out: connections that came to a frontend before
// may still stand in its queue.
type removal struct {
	frontend proxy.Frontend
	backend  netip.AddrPort
	at       time.Time
}

// young is for how long a connection may stand in a queue before we no longer wait for it.
const young = time.Second

// removals returns the servers of TCP that a change takes out.
func removals(was, is *proxy.Rule, now time.Time) (all []removal) {
	if was.Protocol != corev1.ProtocolTCP || was.Relayed {
		return nil
	}
	for _, a := range goneFrom(was, is) {
		all = append(all, removal{was.Frontend, a, now})
	}
	return all
}

// has reports whether a connection of TCP to an address was one to the frontend of p, and that to its server.
func (p *removal) has(to, server netip.AddrPort) bool {
	return p.backend == server && p.frontend.Port == to.Port() && (p.frontend.Address == to.Addr() || p.frontend.Address.IsUnspecified())
}

// mayQueue reports whether the server of a connection may not have accepted it yet: all that has
// come from its host is what a kernel sends on its own. Counted says that packets are counted now.
func mayQueue(f *flow, counted bool) bool {
	const lastAck, closed = 6, 8 // TCP_CONNTRACK_LAST_ACK, behind it TIME_WAIT and CLOSE
	if f.state >= lastAck && f.state <= closed {
		return false
	}
	if f.sent.packets == 0 {
		return !counted // it was made before packets were counted
	}
	// A packet without data has no more than this: the one that opens a connection has 40 bytes of TCP.
	bare := uint64(20 + 40)
	if f.to.Addr().Is6() {
		bare = 40 + 40
	}
	return f.answered.bytes <= bare*f.answered.packets
}

// A drain is a removal with the connections that it leaves behind. As rules send no new ones to
// its server, they are found once, and from then on only these are looked at.
type drain struct {
	removal
	found  bool
	queued []*pendingConn // as far as they are found
}

// A pendingConn is a connection that may stand in the queue of its server.
type pendingConn struct {
	flowKey
	no bool // it does not, as was seen
}

// drains are the servers that were taken out not long ago.
type drains struct {
	mu   sync.Mutex
	all  []*drain  // guarded by mu
	anew time.Time // guarded by mu; when rules took the place of others, of which it is not known which servers they had

	looking  sync.Mutex  // held while somebody looks, and held first; the drains' own fields are guarded by it
	read     time.Time   // guarded by looking; when all connections were read last
	rest     time.Time   // guarded by looking; when they may be read the next time
	conn     *conntrack  // guarded by looking; nil if there is none. It is kept while it listens: to close it takes long
	arrivals arrivals    // guarded by looking
	idle     *time.Timer // guarded by looking; ends listening when nobody has left for long
}

// part notes servers that were taken out, and forgets those that are back.
func (l *drains) add(gone []removal, changes []proxy.Change, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(p *drain) bool {
		return now.Sub(p.at) > young || slices.ContainsFunc(changes, func(c proxy.Change) bool {
			return c.Is.Frontend == p.frontend && hasBackend(&c.Is, p.backend)
		})
	})
	for _, p := range gone {
		p.at = now
		l.all = append(l.all, &drain{removal: p})
	}
}

// replaced notes that rules took the place of unknown ones.
func (l *drains) replaced(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.anew = now
}

// unknown is for how long connections to servers that are not known to have left may still be young.
func (l *drains) unknown(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.anew.Add(young).Sub(now)
}

// list returns those that are to be waited for.
func (l *drains) list(now time.Time) []*drain {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(p *drain) bool { return p.old(now) })
	return slices.Clone(l.all)
}

func (p *removal) old(now time.Time) bool { return now.Sub(p.at) >= young }

// Settle implements [proxy.Kernel]. It waits until each connection that was made to a server before it was taken
// out has been answered by that, and so accepted, or has ended, or is a second old.
//
// Nothing tells when that is so. It finds those connections once, for all servers that are gone by then, and
// looks at these few from time to time; for a second at most, and only if a server of TCP was taken out. Where
// all rules were made anew in the place of others a second has to do.
func (k *Kernel) Settle(ctx context.Context) {
	if rest := k.drains.unknown(time.Now()); rest > 0 && !run.Pause(ctx, rest) {
		return
	}
	mine := k.drains.list(time.Now())
	const first, longest = 2 * time.Millisecond, 50 * time.Millisecond
	for pause := first; len(mine) > 0; pause = min(2*pause, longest) {
		var rest time.Duration
		mine, rest = k.drains.look(mine)
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

// share is how much longer than reading all connections took they are not read again.
const share = 4

// look returns those in whose queues a connection may stand, and for how long it is of no use, or would take
// too much of this machine, to look again.
func (l *drains) look(mine []*drain) (left []*drain, rest time.Duration) {
	l.looking.Lock()
	defer l.looking.Unlock()
	defer func() {
		if !l.arrivals.listening() {
			l.disconnect()
		}
	}()
	counted := accounting() == "1"
	// What can't be read is not known: then a second has to do.
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

// find finds the connections of all that have left, or says for how long it is not to be tried again.
//
// Those that began not long ago are heard of if it listens; otherwise all that there are have to be read.
// Who reads them twice in short order listens from then on, until nobody has left for a while. That costs every
// connection that begins some microseconds, so it is nothing for a single change.
func (l *drains) find(counted bool) (rest time.Duration, err error) {
	const hold = 3 * time.Second
	start := time.Now()
	all := slices.DeleteFunc(l.list(start), func(p *drain) bool { return p.found })
	if !l.arrivals.listening() && start.Before(l.rest) {
		return l.rest.Sub(start), nil
	}
	awaitPackets()
	if l.arrivals.listening() {
		l.idle.Reset(hold)
		l.arrivals.hear(time.Now())
		l.arrivals.find(all)
		all = slices.DeleteFunc(all, func(p *drain) bool { return p.found })
	}
	switch {
	case len(all) == 0:
		return 0, nil
	case start.Before(l.rest):
		return l.rest.Sub(start), nil
	case !l.arrivals.listening() && start.Sub(l.read) < hold && l.arrivals.listen() == nil:
		l.idle = time.AfterFunc(hold, l.stopListening)
	}
	err = l.connected(func(c *conntrack) error { return search(c, all, counted) })
	l.read = time.Now()
	l.rest = l.read.Add(share * l.read.Sub(start))
	return 0, err
}

// stopListening ends listening.
func (l *drains) stopListening() {
	l.looking.Lock()
	defer l.looking.Unlock()
	if l.arrivals.listening() {
		l.idle.Stop()
		l.arrivals.close()
	}
	l.disconnect()
}

// connected calls f with a connection, which is of no more use after an error.
func (l *drains) connected(f func(*conntrack) error) (err error) {
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

func (l *drains) disconnect() {
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

// search reads all connections and notes those that may stand in the queue of one of these servers.
func search(c *conntrack, all []*drain, counted bool) error {
	by := byServer(all)
	for _, s := range selections(all, remembered()) {
		if err := c.each(s, func(f *flow) {
			for _, p := range by[f.server] {
				if f.protocol == unix.IPPROTO_TCP && p.has(f.to, f.server) && mayQueue(f, counted) {
					p.queued = append(p.queued, &pendingConn{flowKey: f.key.clone()})
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

// recheck looks again at connections that were found, and drops those that stand in no queue any more.
func recheck(c *conntrack, all []*drain, counted bool) error {
	for _, v6 := range []bool{false, true} {
		var queued []*pendingConn
		var keys []flowKey
		for _, p := range all {
			if p.found && p.backend.Addr().Is6() == v6 {
				queued = append(queued, p.queued...)
			}
		}
		for _, q := range queued {
			keys = append(keys, q.flowKey)
		}
		waits := make([]bool, len(keys))
		if err := c.look(v6, keys, func(i int, now *flow) { waits[i] = mayQueue(now, counted) }); err != nil {
			return err
		}
		for i, q := range queued {
			q.no = !waits[i]
		}
	}
	for _, p := range all {
		p.queued = slices.DeleteFunc(p.queued, func(q *pendingConn) bool { return q.no })
	}
	return nil
}

// selections are what has to be read for servers that were taken out, where so many flows are
// remembered. Going through all of them takes a tenth of writing them down, and 10 ms at least: with
// many of them the kernel is asked for each server by itself, as far as it can tell servers apart.
func selections(all []*drain, flows int) (s []selection) {
	const perServer = 12_500
	for _, v6 := range []bool{false, true} {
		servers := map[netip.AddrPort][]netip.AddrPort{} // frontends of each
		var backends, frontends []netip.AddrPort
		for _, p := range all {
			if p.backend.Addr().Is6() == v6 {
				frontend := netip.AddrPortFrom(p.frontend.Address, p.frontend.Port)
				servers[p.backend] = append(servers[p.backend], frontend)
				backends, frontends = append(backends, p.backend), append(frontends, frontend)
			}
		}
		switch {
		case len(servers) == 0:
		case v6 || len(servers) > 1+flows/perServer:
			s = append(s, selection{v6, unix.IPPROTO_TCP, common(frontends), common(backends)})
		default:
			for b, frontends := range servers {
				s = append(s, selection{v6, unix.IPPROTO_TCP, common(frontends), b})
			}
		}
	}
	return s
}

// remembered returns how many flows there are, or 0 if that can't be read.
func remembered() int {
	b, _ := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}
