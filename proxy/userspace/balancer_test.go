package userspace

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func backends(ports ...uint16) []netip.AddrPort {
	var r []netip.AddrPort
	for _, p := range ports {
		r = append(r, netip.AddrPortFrom(netip.MustParseAddr("10.1.0.1"), p))
	}
	return r
}

var someone = netip.MustParseAddr("10.0.0.1")

// picks returns the ports of n choices for one client at one moment.
func picks(b *balancer, client string, n int, now time.Time) []uint16 {
	var r []uint16
	for range n {
		if e := b.pick(netip.MustParseAddr(client), now, nil); e != nil {
			r = append(r, e.at.Port())
		}
	}
	return r
}

func TestBackendsTakeTurns(t *testing.T) {
	b, now := newBalancer(), time.Unix(0, 0)
	if got := picks(b, "10.0.0.1", 3, now); got != nil {
		t.Errorf("picked %v of no backends", got)
	}
	b.set(backends(1, 2, 3), 0)
	if got := picks(b, "10.0.0.1", 7, now); !slices.Equal(got, []uint16{1, 2, 3, 1, 2, 3, 1}) {
		t.Errorf("picked %v", got)
	}
}

func TestAChangeGoesOnWhereTheTurnWas(t *testing.T) {
	b, now := newBalancer(), time.Unix(0, 0)
	b.set(backends(1, 2, 3), 0)
	picks(b, "10.0.0.1", 2, now) // 3 is next
	b.set(backends(1, 3, 4), 0)
	if got := picks(b, "10.0.0.1", 3, now); !slices.Equal(got, []uint16{3, 4, 1}) {
		t.Errorf("picked %v, want to go on with 3", got)
	}
}

func TestAffinityHoldsForItsTimeSinceTheLastConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBalancer()
		b.set(backends(1, 2, 3), time.Minute)
		first := picks(b, "10.0.0.1", 1, time.Now())[0]
		picks(b, "10.0.0.2", 1, time.Now())
		for range 3 {
			time.Sleep(59 * time.Second)
			if got := picks(b, "10.0.0.1", 1, time.Now())[0]; got != first {
				t.Errorf("client moved from %d to %d within its time", first, got)
			}
		}
		time.Sleep(61 * time.Second)
		if got := picks(b, "10.0.0.1", 1, time.Now())[0]; got == first {
			t.Errorf("client is still tied to %d after its time", first)
		}
	})
}

func TestAffinityGivesUpABackendThatFailsOrGoes(t *testing.T) {
	b, now := newBalancer(), time.Unix(0, 0)
	b.set(backends(1, 2), time.Hour)
	first := b.pick(someone, now, nil)
	b.failed(first, someone, now)
	second := b.pick(someone, now, []*endpoint{first})
	if first == second {
		t.Errorf("%v was picked again although it did not answer", first.at)
	}
	now = now.Add(time.Minute) // the first one is above suspicion again
	if third := b.pick(someone, now, nil); third != second {
		t.Errorf("client is tied to %v, want the one that answered, %v", third.at, second.at)
	}
	b.set([]netip.AddrPort{first.at}, time.Hour)
	if got := b.pick(someone, now, nil); got != first {
		t.Errorf("client is tied to %v, which is gone", got.at)
	}
}

func TestOneClientRetriesAFailedEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBalancer()
		b.set(backends(1, 2), 0)
		dead := b.pick(someone, time.Now(), nil)
		for range 100 { // that were under way count as one
			b.failed(dead, someone, time.Now())
		}
		const tries = 60
		probes := 0
		for range tries * 10 { // ten clients each second, for a minute
			if b.pick(someone, time.Now(), nil) == dead {
				probes++
				b.failed(dead, someone, time.Now())
			}
			time.Sleep(100 * time.Millisecond)
		}
		// After 1, 2, 4, 8, 10, 10, 10, 10 seconds.
		if probes < 6 || probes > 9 {
			t.Errorf("a dead endpoint cost %d of 600 clients in a minute, want 6 to 9", probes)
		}
		time.Sleep(maxSuspicion)
		for range 2 {
			if e := b.pick(someone, time.Now(), nil); e == dead {
				b.answered(e)
			}
		}
		if got := picks(b, "10.0.0.1", 2, time.Now()); got[0] == got[1] {
			t.Errorf("picked %v, want both: it has answered", got)
		}
	})
}

func TestAllFailedTriesTheFirstThatFailed(t *testing.T) {
	b, now := newBalancer(), time.Unix(0, 0)
	b.set(backends(1, 2, 3), 0)
	var order []*endpoint
	for range 3 {
		e := b.pick(someone, now, order)
		b.failed(e, someone, now)
		order = append(order, e)
		now = now.Add(time.Millisecond)
	}
	if e := b.pick(someone, now, order); e != nil {
		t.Errorf("picked %v, which was tried", e.at)
	}
	if e := b.pick(someone, now, nil); e != order[0] {
		t.Errorf("picked %v, want %v", e, order[0].at)
	}
}

func TestBackendLeavesAfterItsYoungConnections(t *testing.T) {
	b, now := newBalancer(), time.Unix(0, 0)
	b.set(backends(1), 0)
	e := b.begin(someone, now, nil)
	if e == nil || b.begin(someone, now, nil) != e {
		t.Fatal("nothing was picked")
	}
	if left, _ := b.left(); left != nil {
		t.Errorf("%v leave while they are backends", left)
	}
	b.set(backends(2), 0)
	left, grown := b.left()
	if !slices.Equal(left, []*endpoint{e}) {
		t.Errorf("%v leave, want %v", left, e)
	}
	b.done(e)
	select {
	case <-grown:
		t.Error("one of two is not all")
	default:
	}
	b.done(e)
	<-grown
	if left, _ := b.left(); left != nil {
		t.Errorf("%v leave, want none", left)
	}
}

func TestReturningBackendEndsTheWait(t *testing.T) {
	b, now := newBalancer(), time.Unix(0, 0)
	b.set(backends(1), 0)
	e := b.begin(someone, now, nil)
	b.set(nil, 0)
	_, grown := b.left()
	b.set(backends(1), 0)
	<-grown
	if left, _ := b.left(); left != nil {
		t.Errorf("%v leave, want none: it is back", left)
	}
	if b.begin(someone, now, nil) != e {
		t.Error("its young connections are forgotten")
	}
	b.done(e)
	b.set(nil, 0)
	if left, _ := b.left(); len(left) != 1 {
		t.Errorf("%v leave, want the one with a young connection", left)
	}
	b.done(e)
}

func TestSessionsAreBounded(t *testing.T) {
	b, now := newBalancer(), time.Unix(0, 0)
	b.set(backends(1, 2), time.Hour)
	client := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	for i := range maxClients + 10 {
		now = now.Add(time.Millisecond)
		b.pick(client(i), now, nil)
	}
	if n := len(b.sessions); n > maxClients {
		t.Errorf("%d sessions, want at most %d", n, maxClients)
	}
	if b.sessions[client(0)] != nil || b.sessions[client(maxClients)] == nil {
		t.Error("not the oldest session was forgotten")
	}
	now = now.Add(2 * time.Hour)
	for i := range maxClients {
		b.pick(client(i%3), now, nil)
		b.forget(b.sessions[client(i%3)])
	}
	if n := len(b.sessions); n != 0 {
		t.Errorf("%d sessions are left after their time", n)
	}
}

// model is what a balancer promises, said as simply as can be.
type model struct {
	endpoints map[netip.AddrPort]*known
	ties      map[netip.Addr]tie
	affinity  time.Duration
}

type known struct {
	until time.Time
	e     *endpoint
}

type tie struct {
	at   netip.AddrPort
	seen time.Time
}

// TestBalancerKeepsItsPromises plays random histories. A choice is always an endpoint that was
// not tried; nil only if there is none such; never one that failed lately while another has
// not; that of the client's session if it may be; and counts of young connections come out even.
func TestBalancerKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, now := newBalancer(), time.Unix(0, 0)
		m := model{endpoints: map[netip.AddrPort]*known{}, ties: map[netip.Addr]tie{}}
		var under []*endpoint // young connections
		ports := rapid.SliceOfNDistinct(rapid.Uint16Range(1, 6), 0, 5, rapid.ID[uint16])
		clients := rapid.SampledFrom([]netip.Addr{someone, someone.Next(), someone.Next().Next()})
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				want := ports.Draw(t, "ports")
				slices.Sort(want)
				m.affinity = rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "affinity")
				b.set(backends(want...), m.affinity)
				was := m.endpoints
				m.endpoints = map[netip.AddrPort]*known{}
				for _, e := range b.endpoints {
					if k := was[e.at]; k != nil && k.e == e {
						m.endpoints[e.at] = k
					} else {
						m.endpoints[e.at] = &known{e: e}
					}
				}
				if len(m.endpoints) != len(want) {
					t.Fatalf("%d endpoints, want %d", len(m.endpoints), len(want))
				}
				for client, s := range m.ties {
					if m.affinity == 0 || m.endpoints[s.at] == nil {
						delete(m.ties, client)
					}
				}
			},
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 90_000).Draw(t, "milliseconds")) * time.Millisecond)
			},
			"connect": func(t *rapid.T) {
				client := clients.Draw(t, "client")
				var tried []*endpoint
				for _, e := range b.endpoints {
					if rapid.Bool().Draw(t, fmt.Sprint("tried ", e.at.Port())) {
						tried = append(tried, e)
					}
				}
				free, good := 0, 0
				for _, k := range m.endpoints {
					if !slices.Contains(tried, k.e) {
						if free++; !now.Before(k.until) {
							good++
						}
					}
				}
				got := b.begin(client, now, tried)
				if got == nil {
					if free > 0 {
						t.Fatalf("nothing was picked, of %d", free)
					}
					return
				}
				k := m.endpoints[got.at]
				if k == nil || k.e != got || slices.Contains(tried, got) {
					t.Fatalf("picked %v, which is none or was tried", got.at)
				}
				if good > 0 && now.Before(k.until) {
					t.Fatalf("picked %v, which failed lately", got.at)
				}
				if s, tied := m.ties[client]; tied && now.Sub(s.seen) < m.affinity {
					home := m.endpoints[s.at]
					if !slices.Contains(tried, home.e) && !now.Before(home.until) && got != home.e {
						t.Fatalf("picked %v, but the client is tied to %v", got.at, s.at)
					}
				}
				if m.affinity > 0 {
					m.ties[client] = tie{got.at, now}
				}
				under = append(under, got)
				if got.failures > 0 {
					k.until = got.until // one client tries it; others avoid it as long as the balancer says
				}
				switch rapid.IntRange(0, 2).Draw(t, "outcome") {
				case 0:
					b.failed(got, client, now)
					delete(m.ties, client)
					k.until = got.until
					if got.until.Sub(now) < firstSuspicion || got.until.Sub(now) > maxSuspicion {
						t.Fatalf("avoided for %v", got.until.Sub(now))
					}
				case 1:
					b.answered(got)
					k.until = time.Time{}
				}
			},
			"grow up": func(t *rapid.T) {
				if len(under) > 0 {
					i := rapid.IntRange(0, len(under)-1).Draw(t, "which")
					b.done(under[i])
					under = slices.Delete(under, i, i+1)
				}
			},
			"": func(t *rapid.T) {
				left, _ := b.left()
				for _, e := range under {
					if gone := m.endpoints[e.at] == nil || m.endpoints[e.at].e != e; gone != slices.Contains(left, e) {
						t.Fatalf("%v has young connections; gone: %t, leaving: %v", e.at, gone, left)
					}
				}
				for _, e := range left {
					if !slices.Contains(under, e) {
						t.Fatalf("%v leaves without young connections", e.at)
					}
				}
				suspects := 0
				for _, e := range b.endpoints {
					if e.failures > 0 {
						suspects++
					}
				}
				if suspects != b.suspects {
					t.Fatalf("%d suspects, counted %d", suspects, b.suspects)
				}
			},
		})
	})
}
