package nft

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// arrivals are the connections of TCP that began not long ago and were sent to other addresses, while
// somebody listened. The zero value does not listen.
//
// Nobody is woken by them: the kernel keeps the messages until they are asked for. Those that a rule of somebody else
// keeps back ("ct event set", CT --ctevents) are not heard of.
type arrivals struct {
	conn  *conntrack
	since time.Time  // of all that began later it has heard
	all   []*arrival // in the order in which they were heard of
}

type arrival struct {
	pendingConn
	to, server netip.AddrPort
	heard      time.Time
}

func (a *arrivals) listening() bool { return a.conn != nil }

// told reports whether the kernel tells which flows begin.
func flowEvents() bool {
	b, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_events")
	return err == nil && strings.TrimSpace(string(b)) != "0"
}

// listen begins to listen.
func (a *arrivals) listen() error {
	if !flowEvents() {
		return errors.New("the kernel does not tell which flows begin: net.netfilter.nf_conntrack_events is 0")
	}
	const buffer = 8 << 20 // for some 10,000, of which those of a moment are in it
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

// hear takes notice of all that began until now, and forgets those that are not young any more or are known to
// stand in no queue.
func (a *arrivals) hear(now time.Time) {
	a.all = slices.DeleteFunc(a.all, func(x *arrival) bool { return x.no || now.Sub(x.heard) > young })
	err := a.conn.hear(func(f *flow) {
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

// find finds the connections of those of which it has heard all that were young when they left.
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
