package balancer

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

func TestPoolSize(t *testing.T) {
	for text, want := range map[string][2]uint64{
		"":                                 {0, 0},
		"192.0.2.1":                        {1, 0},
		"192.0.2.10-192.0.2.20,10.0.0.0/8": {11 + 1<<24, 0},
		"2001:db8::/120":                   {0, 256},
		"2001:db8::ffff:ffff:ffff:fffe-2001:db8:0:1::1": {0, 4},
		"2001:db8::/64": {0, 1<<64 - 1}, // as many as can be said
		"2001:db8::/32": {0, 1<<64 - 1},
	} {
		p, err := ParsePool(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]uint64{p.size(corev1.IPv4Protocol), p.size(corev1.IPv6Protocol)}; got != want {
			t.Errorf("%q has %v addresses, want %v", text, got, want)
		}
		if p.Empty() != (text == "") {
			t.Errorf("%q is empty: %v", text, p.Empty())
		}
	}
}

func TestPoolOverlaps(t *testing.T) {
	p, err := ParsePool("192.0.2.10-192.0.2.20,2001:db8::/120")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"192.0.2.0/24": true, "192.0.2.20/32": true, "192.0.2.21/32": false, "10.0.0.0/8": false, "0.0.0.0/0": true,
		"2001:db8::/32": true, "2001:db8::100/120": false,
	} {
		if got := p.Overlaps(netip.MustParsePrefix(text)); got != want {
			t.Errorf("the pool overlaps with %s: %v", text, got)
		}
	}
}

// What a pool prints it can read, and it means the same: every address of it, in order.
func TestPoolReadsItsOutput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := ""
		for i := range rapid.IntRange(1, 4).Draw(t, "parts") {
			if i > 0 {
				text += ","
			}
			text += rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.4-192.0.2.9", "198.51.100.0/29", "2001:db8::/124", "2001:db8::f0-2001:db8::ff", "203.0.113.255"}).Draw(t, "part")
		}
		p, err := ParsePool(text)
		if err != nil {
			t.Skip("they overlap")
		}
		again, err := ParsePool(p.String())
		if err != nil || again.String() != p.String() {
			t.Fatalf("%s reads as %s: %v", p, again, err)
		}
		for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
			n, seen := uint64(0), map[netip.Addr]bool{}
			for a := range p.from(family, netip.Addr{}) {
				if n++; seen[a] || !p.Holds(a) || familyOf(a) != family {
					t.Fatalf("%s of %s is there twice, or not at all", a, p)
				}
				seen[a] = true
				for first := range p.from(family, a) {
					if first != a {
						t.Fatalf("from %s on %s begins with %s", a, p, first)
					}
					break
				}
			}
			if n != p.size(family) {
				t.Fatalf("%s has %d addresses and says %d", p, n, p.size(family))
			}
		}
	})
}
