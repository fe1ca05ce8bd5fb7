package userspace

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

func backends(ports ...uint16) []netip.AddrPort {
	var r []netip.AddrPort
	for _, p := range ports {
		r = append(r, netip.AddrPortFrom(netip.MustParseAddr("10.1.0.1"), p))
	}
	return r
}

// picks returns the ports of n choices for one client at one moment.
func picks(b *balancer, client string, n int, now time.Time) []uint16 {
	var r []uint16
	for range n {
		if p, _, ok := b.pick(netip.MustParseAddr(client), now, false); ok {
			r = append(r, p.Port())
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
	b, now := newBalancer(), time.Unix(0, 0)
	b.set(backends(1, 2, 3), time.Minute)
	first := picks(b, "10.0.0.1", 1, now)[0]
	picks(b, "10.0.0.2", 1, now)
	for range 3 {
		now = now.Add(59 * time.Second)
		if got := picks(b, "10.0.0.1", 1, now)[0]; got != first {
			t.Errorf("client moved from %d to %d within its time", first, got)
		}
	}
	now = now.Add(61 * time.Second)
	if got := picks(b, "10.0.0.1", 1, now)[0]; got == first {
		t.Errorf("client is still tied to %d after its time", first)
	}
}

func TestAffinityGivesUpABackendThatFailsOrGoes(t *testing.T) {
	b, now, client := newBalancer(), time.Unix(0, 0), netip.MustParseAddr("10.0.0.1")
	b.set(backends(1, 2), time.Hour)
	first, _, _ := b.pick(client, now, false)
	second, _, _ := b.pick(client, now, true)
	if first == second {
		t.Errorf("%v was picked again although it did not answer", first)
	}
	if third, _, _ := b.pick(client, now, false); third != second {
		t.Errorf("client is tied to %v, want the one that answered, %v", third, second)
	}
	b.set([]netip.AddrPort{first}, time.Hour)
	if got, _, _ := b.pick(client, now, false); got != first {
		t.Errorf("client is tied to %v, which is gone", got)
	}
}

func TestAWaitingPickLearnsOfAChange(t *testing.T) {
	b := newBalancer()
	_, changed, _ := b.pick(netip.MustParseAddr("10.0.0.1"), time.Unix(0, 0), false)
	b.set(backends(1), 0)
	select {
	case <-changed:
	default:
		t.Error("the channel is not closed after a change")
	}
}

func TestABackendLeavesUntilItsYoungConnectionsAreGrown(t *testing.T) {
	b, client, now := newBalancer(), netip.MustParseAddr("10.0.0.1"), time.Unix(0, 0)
	b.set(backends(1), 0)
	for range 2 {
		if _, _, ok := b.begin(client, now, false); !ok {
			t.Fatal("nothing was picked")
		}
	}
	if left, _ := b.leaving(); left != nil {
		t.Errorf("%v leave while they are backends", left)
	}
	b.set(backends(2), 0)
	left, grown := b.leaving()
	if !slices.Equal(left, backends(1)) {
		t.Errorf("%v leave, want %v", left, backends(1))
	}
	b.done(backends(1)[0])
	select {
	case <-grown:
		t.Error("one of two is not all")
	default:
	}
	b.done(backends(1)[0])
	<-grown
	if left, _ := b.leaving(); left != nil {
		t.Errorf("%v leave, want none", left)
	}
}
