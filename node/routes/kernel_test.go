package routes

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sampan-io/sampan/internal/nstest"
)

// listed returns all routes of this namespace to pods.
func listed(t *testing.T) string {
	t.Helper()
	all, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range all {
		if r.Dst != nil && r.Dst.IP[0] == 10 {
			lines = append(lines, r.Dst.String()+" "+r.Gw.String())
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

func TestKernelHasTheRoutes(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "shared"}, PeerName: "other"}
		if err := netlink.LinkAdd(link); err != nil {
			t.Fatal(err)
		}
		address := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(24, 32)}}
		foreign := &netlink.Route{Dst: ipNet(netip.MustParsePrefix("10.244.9.0/24")), Gw: net.IPv4(192, 0, 2, 9)}
		for _, err := range []error{netlink.AddrAdd(link, address), netlink.LinkSetUp(link)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if other, err := netlink.LinkByName("other"); err != nil || netlink.LinkSetUp(other) != nil {
			t.Fatal("the other end of the link is not up", err)
		}
		if err := netlink.RouteAdd(foreign); err != nil {
			t.Fatal(err)
		}
		pods := prefixes("10.244.0.0/16")
		route := func(to, via string) Route { return Route{netip.MustParsePrefix(to), netip.MustParseAddr(via)} }
		refused := Route{To: pods[0]}
		for _, tt := range []struct {
			want   []Route
			listed string
			faults int
		}{
			{[]Route{refused, route("10.244.1.0/24", "192.0.2.2")}, "10.244.0.0/16 <nil>, 10.244.1.0/24 192.0.2.2", 0},
			{[]Route{refused, route("10.244.1.0/24", "192.0.2.2")}, "10.244.0.0/16 <nil>, 10.244.1.0/24 192.0.2.2", 0},
			{[]Route{refused, route("10.244.1.0/24", "192.0.2.3"), route("10.244.2.0/24", "192.0.2.4")}, "10.244.0.0/16 <nil>, 10.244.1.0/24 192.0.2.3, 10.244.2.0/24 192.0.2.4", 0},
			{[]Route{refused, route("10.244.2.0/24", "192.0.2.4"), route("10.244.3.0/24", "203.0.113.1")}, "10.244.0.0/16 <nil>, 10.244.2.0/24 192.0.2.4", 1},
			{nil, "", 0},
		} {
			faults, err := apply(pods, tt.want)
			if err != nil || len(faults) != tt.faults {
				t.Errorf("applying %v: %q, %v", tt.want, faults, err)
			}
			want := strings.TrimPrefix(tt.listed+", 10.244.9.0/24 192.0.2.9", ", ")
			if got := listed(t); got != want {
				t.Errorf("after %v the routes are %s, want %s", tt.want, got, want)
			}
		}
	})
}
