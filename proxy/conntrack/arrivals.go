package conntrack

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// arrivals are the recent TCP connections that were sent to a backend while it was listening. The
// zero value does not listen.
//
// The kernel queues the messages until poll reads them, so they wake no goroutine. Flows whose
// events a rule of another program suppresses ("ct event set", CT --ctevents) are missing.
type arrivals struct {
	conn  *conntrack
	since time.Time  // it has all flows that began later
	all   []*arrival // in the order of their events
}

type arrival struct {
	pendingConn
	to, server netip.AddrPort
	seen       time.Time
}

func (a *arrivals) listening() bool { return a.conn != nil }

// flowEvents reports whether the kernel sends events of new flows.
func flowEvents() bool {
	b, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_events")
	return err == nil && strings.TrimSpace(string(b)) != "0"
}

// listen begins to listen.
func (a *arrivals) listen() error {
	if !flowEvents() {
		return errors.New("the kernel sends no events of new flows: net.netfilter.nf_conntrack_events is 0")
	}
	const buffer = 8 << 20 // enough for about 10,000, more than begin between two polls
	conn, err := listenConntrack(buffer)
	if err != nil {
		return err
	}
	*a = arrivals{conn: conn, since: time.Now()}
	return nil
}

// close ends listening.
func (a *arrivals) close() {
	a.conn.close()
	*a = arrivals{}
}

// poll reads the flows that have begun, and drops the ones that are no longer young or are known
// not to wait in a queue.
func (a *arrivals) poll(now time.Time) {
	a.all = slices.DeleteFunc(a.all, func(x *arrival) bool { return x.no || now.Sub(x.seen) > young })
	err := a.conn.newFlows(func(f *flow) {
		if f.protocol == unix.IPPROTO_TCP && f.server != f.to {
			a.all = append(a.all, &arrival{pendingConn{flowKey: f.key.clone()}, f.to, f.server, now})
		}
	})
	switch {
	case errors.Is(err, errMissed):
		a.since = time.Now()
	case err != nil || !flowEvents():
		a.close()
	}
}

// find finds the pending connections of the drains for which it has all flows that were young at
// their removal.
func (a *arrivals) find(all []*drain) {
	by := byServer(slices.DeleteFunc(slices.Clone(all), func(p *drain) bool {
		return !a.listening() || a.since.After(p.at.Add(-young))
	}))
	for _, some := range by {
		for _, p := range some {
			p.found = true
		}
	}
	for _, x := range a.all {
		for _, p := range by[x.server] {
			if p.has(x.to, x.server) {
				p.queued = append(p.queued, &x.pendingConn)
			}
		}
	}
}
