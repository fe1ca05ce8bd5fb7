package userspace

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

func TestLookReturnsAffinityAndSuspects(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")
	client, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	x := newBalancer()
	x.set([]netip.AddrPort{a, b}, time.Minute)
	bound := x.pick(client, now, nil)

	got := x.look(client, now.Add(20*time.Second))
	if got.Bound != bound.at || got.Left != 40*time.Second || !slices.Equal(got.Backends, []netip.AddrPort{a, b}) || len(got.Suspects) > 0 {
		t.Errorf("look = %+v, want it bound to %v for 40s more, and nobody suspect", got, bound.at)
	}
	if got := x.look(client, now.Add(time.Minute)); got.Bound.IsValid() {
		t.Errorf("after its time it is bound to %v", got.Bound)
	}
	if got := x.look(other, now); got.Bound.IsValid() || len(x.sessions) != 1 {
		t.Errorf("a client that never came is bound to %v, %d sessions", got.Bound, len(x.sessions))
	}
	x.failed(bound, other, now)
	if got := x.look(client, now); !slices.Equal(got.Suspects, []netip.AddrPort{bound.at}) {
		t.Errorf("suspects %v, want %v", got.Suspects, bound.at)
	}
	x.set(slices.DeleteFunc([]netip.AddrPort{a, b}, func(p netip.AddrPort) bool { return p == bound.at }), time.Minute)
	if got := x.look(client, now); got.Bound.IsValid() {
		t.Errorf("bound to %v, which is gone", got.Bound)
	}
}
