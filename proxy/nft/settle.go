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

// A parting is a server that was taken out: connections that came to a door before
// may still stand in its queue.
type parting struct {
	door    proxy.Door
	backend netip.AddrPort
	at      time.Time
}

// young is for how long a connection may stand in a queue before we no longer wait for it.
const young = time.Second

// partings returns the servers of TCP that a change takes out.
func partings(was, is *proxy.Rule, now time.Time) (all []parting) {
	if was.Protocol != corev1.ProtocolTCP || was.Relayed {
		return nil
	}
	stay := backendsOf(is)
	for _, a := range backendsOf(was) {
		if !slices.Contains(stay, a) {
			all = append(all, parting{was.Door, a, now})
		}
	}
	return all
}

// has reports whether a flow came to the door of p and was sent to its server.
func (p *parting) has(f *flow) bool {
	return f.protocol == unix.IPPROTO_TCP && p.backend == f.server && p.door.Port == f.to.Port() &&
		(p.door.Address == f.to.Addr() || p.door.Address.IsUnspecified())
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

// A departure is a parting with the connections that it leaves behind. As rules send no new ones to
// its server, they are found once, and from then on only these are looked at.
type departure struct {
	parting
	found  bool
	queued []flowKey // that may stand in the queue, as far as found
}

// departures are the servers that were taken out not long ago.
type departures struct {
	mu  sync.Mutex
	all []*departure // guarded by mu

	looking sync.Mutex // held while somebody looks, and held first; the departures' own fields are guarded by it
	rest    time.Time  // guarded by looking; when all connections may be read the next time
}

// part notes servers that were taken out, and forgets those that are back.
func (l *departures) part(gone []parting, changes []proxy.Change, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(p *departure) bool {
		return now.Sub(p.at) > young || slices.ContainsFunc(changes, func(c proxy.Change) bool {
			return c.Is.Door == p.door && slices.Contains(backendsOf(&c.Is), p.backend)
		})
	})
	for _, p := range gone {
		l.all = append(l.all, &departure{parting: p})
	}
}

// list returns those that are to be waited for.
func (l *departures) list(now time.Time) []*departure {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(p *departure) bool { return p.old(now) })
	return slices.Clone(l.all)
}

func (p *parting) old(now time.Time) bool { return now.Sub(p.at) >= young }

// Settle implements [proxy.Kernel]. It waits until each connection that was made to a server before it was taken
// out has been answered by that, and so accepted, or has ended, or is a second old.
//
// Nothing tells when that is so. It reads all connections once, for all servers that are gone by
// then, and after that a few times the few that it found; for a second at most, and only if a
// server of TCP was taken out.
func (k *Kernel) Settle(ctx context.Context) {
	mine := k.departed.list(time.Now())
	const first, longest = 2 * time.Millisecond, 50 * time.Millisecond
	for pause := first; len(mine) > 0; pause = min(2*pause, longest) {
		var rest time.Duration
		mine, rest = k.departed.look(mine)
		now := time.Now()
		mine = slices.DeleteFunc(mine, func(p *departure) bool { return p.old(now) })
		if len(mine) == 0 {
			return
		}
		last := slices.MaxFunc(mine, func(a, b *departure) int { return a.at.Compare(b.at) })
		if !run.Pause(ctx, min(max(pause, rest), last.at.Add(young).Sub(now))) {
			return
		}
	}
}

// share is how much longer than reading all connections took they are not read again.
const share = 4

// look returns those in whose queues a connection may stand, and for how long it is of no use, or would take
// too much of this machine, to look again.
func (l *departures) look(mine []*departure) (left []*departure, rest time.Duration) {
	l.looking.Lock()
	defer l.looking.Unlock()
	counted := accounting() == "1"
	known := slices.DeleteFunc(slices.Clone(mine), func(p *departure) bool { return !p.found })
	if len(known) > 0 {
		start := time.Now()
		_ = recheck(known, counted) // after an error nothing is known to have changed
		rest = share * time.Since(start)
	}
	if len(known) < len(mine) {
		start := time.Now()
		if wait := l.rest.Sub(start); wait <= 0 {
			_ = search(slices.DeleteFunc(l.list(start), func(p *departure) bool { return p.found }), counted)
			l.rest = time.Now().Add(share * time.Since(start))
		} else if len(known) == 0 {
			rest = wait
		}
	}
	settled := func(p *departure) bool { return p.found && len(p.queued) == 0 }
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, settled)
	return slices.DeleteFunc(mine, settled), rest
}

// search reads all connections and notes those that may stand in the queue of one of these servers.
func search(all []*departure, counted bool) error {
	awaitPackets()
	c, err := openConntrack()
	if err != nil {
		return err
	}
	defer c.close()
	by := map[netip.AddrPort][]*departure{}
	for _, p := range all {
		p.queued = nil
		by[p.backend] = append(by[p.backend], p)
	}
	for _, s := range selections(all, remembered()) {
		if err := c.each(s, func(f *flow) {
			for _, p := range by[f.server] {
				if p.has(f) && mayQueue(f, counted) {
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

// recheck looks again at connections that were found, and drops those that stand in no queue any more.
func recheck(all []*departure, counted bool) error {
	c, err := openConntrack()
	if err != nil {
		return err
	}
	defer c.close()
	for _, v6 := range []bool{false, true} {
		some := slices.DeleteFunc(slices.Clone(all), func(p *departure) bool { return p.backend.Addr().Is6() != v6 })
		var keys []flowKey
		for _, p := range some {
			keys = append(keys, p.queued...)
		}
		waits := make([]bool, len(keys))
		if err := c.look(v6, keys, func(i int, now *flow) { waits[i] = mayQueue(now, counted) }); err != nil {
			return err
		}
		for _, p := range some {
			still := p.queued[:0]
			for i, k := range p.queued {
				if waits[i] {
					still = append(still, k)
				}
			}
			waits = waits[len(p.queued):]
			p.queued = still
		}
	}
	return nil
}

// selections are what has to be read for servers that were taken out, where so many flows are
// remembered. Going through all of them takes a tenth of writing them down, and 10 ms at least: with
// many of them the kernel is asked for each server by itself, as far as it can tell servers apart.
func selections(all []*departure, flows int) (s []selection) {
	const perServer = 12_500
	for _, v6 := range []bool{false, true} {
		servers := map[netip.AddrPort][]netip.AddrPort{} // doors of each
		var backends, doors []netip.AddrPort
		for _, p := range all {
			if p.backend.Addr().Is6() == v6 {
				door := netip.AddrPortFrom(p.door.Address, p.door.Port)
				servers[p.backend] = append(servers[p.backend], door)
				backends, doors = append(backends, p.backend), append(doors, door)
			}
		}
		switch {
		case len(servers) == 0:
		case v6 || len(servers) > 1+flows/perServer:
			s = append(s, selection{v6, unix.IPPROTO_TCP, common(doors), common(backends)})
		default:
			for b, doors := range servers {
				s = append(s, selection{v6, unix.IPPROTO_TCP, common(doors), b})
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
