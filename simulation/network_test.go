package simulation

import (
	"net/netip"
	"testing"
)

func TestNodesHavePartsOfThePodNetwork(t *testing.T) {
	for _, tt := range []struct {
		pods string
		node int
		want string
	}{
		{"10.244.0.0/16", 0, "10.244.0.0/24"},
		{"10.244.0.0/16", 200, "10.244.200.0/24"},
		{"100.64.0.0/10", 300, "100.65.44.0/24"},
		{"fd00:10:244::/56", 0, "fd00:10:244::/64"},
		{"fd00:10:244::/56", 255, "fd00:10:244:ff::/64"},
		{"fd00:10:244::/48", 4660, "fd00:10:244:1234::/64"},
		{"fd00:1:2:3::/64", 18, "fd00:1:2:3:1200::/72"},
		{"fd00:1:2:3::/61", 255, "fd00:1:2:7:f800::/69"},
		{"fd00::/112", 171, "fd00::ab00/120"},
	} {
		pods := netip.MustParsePrefix(tt.pods)
		if got := NodeNetwork(pods, NodeBits(pods), tt.node); got.String() != tt.want {
			t.Errorf("node %d of %s has %v, want %s", tt.node, tt.pods, got, tt.want)
		}
	}
}

func TestRoomForNodesOfIPv6(t *testing.T) {
	for _, tt := range []struct {
		pods  string
		nodes int
		bits  int
		fits  bool
	}{
		{"fd00::/56", 100, 64, true},
		{"fd00::/56", 5000, 69, true},
		{"fd00::/48", 5000, 64, true},
		{"fd00::/112", 256, 120, true},
		{"fd00::/112", 257, 121, false},
		{"10.0.0.0/16", 256, 24, true},
		{"10.0.0.0/16", 257, 24, false},
	} {
		p, pods := Uniform("n", tt.nodes), netip.MustParsePrefix(tt.pods)
		if got := p.NodeBits(pods); got != tt.bits {
			t.Errorf("each of %d nodes of %s has %d bits, want %d", tt.nodes, tt.pods, got, tt.bits)
		}
		if err := p.Room(pods); (err == nil) != tt.fits {
			t.Errorf("%d nodes in %s: %v", tt.nodes, tt.pods, err)
		}
	}
}
