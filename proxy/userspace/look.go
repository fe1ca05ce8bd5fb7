package userspace

import (
	"net/netip"
	"time"

	"github.com/sampan-io/sampan/proxy"
)

// Look returns the state of a pool, and the backend that a client of it goes back to; false if
// there is no such pool. It may be called from any goroutine.
func (f *Forwarder) Look(id proxy.PoolID, client netip.Addr) (proxy.PoolSeen, bool) {
	f.mu.Lock()
	p := f.pools[id]
	f.mu.Unlock()
	if p == nil {
		return proxy.PoolSeen{}, false
	}
	return p.balancer.look(client, time.Now()), true
}

func (b *balancer) look(client netip.Addr, now time.Time) proxy.PoolSeen {
	b.mu.Lock()
	defer b.mu.Unlock()
	var seen proxy.PoolSeen
	for _, e := range b.endpoints {
		seen.Backends = append(seen.Backends, e.at)
		if e.suspect(now) {
			seen.Suspects = append(seen.Suspects, e.at)
		}
	}
	if s := b.sessions[client]; s != nil && !s.endpoint.gone {
		if left := b.affinity - now.Sub(s.seen); left > 0 {
			seen.Bound, seen.Left = s.endpoint.at, left
		}
	}
	return seen
}
