package network

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/nstest"
)

// router is a router of IPv6 at the other end of a cable of this host.
type router struct {
	t         *testing.T
	near, far netlink.Link
	socket    int
}

func newRouter(t *testing.T) *router {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "up0"
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "far0"}))
	r := &router{t: t}
	for name, to := range map[string]*netlink.Link{"up0": &r.near, "far0": &r.far} {
		l, err := netlink.LinkByName(name)
		must(err)
		for setting, value := range map[string]string{"accept_dad": "0", "accept_ra": map[string]string{"up0": "1", "far0": "0"}[name]} {
			must(os.WriteFile(settings6+name+"/"+setting, []byte(value), 0))
		}
		must(netlink.LinkSetUp(l))
		*to = l
	}
	t.Cleanup(func() { _ = netlink.LinkDel(r.near) })
	var err error
	r.socket, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	must(err)
	t.Cleanup(func() { _ = unix.Close(r.socket) })
	must(unix.SetsockoptInt(r.socket, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255)) // others are not heard
	must(unix.SetsockoptInt(r.socket, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, r.far.Attrs().Index))
	return r
}

// heard says to all that this is a router, until the host has it as its default route.
func (r *router) heard() {
	r.t.Helper()
	const advertisement = 134
	packet := []byte{advertisement, 0, 0, 0 /* hops */, 64, 0 /* seconds */, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}
	for began := time.Now(); !r.isDefault(); {
		if time.Since(began) > time.Minute {
			r.t.Fatal("the router is not heard")
		}
		err := unix.Sendto(r.socket, packet, 0, &unix.SockaddrInet6{Addr: [16]byte(net.IPv6linklocalallnodes), ZoneId: uint32(r.far.Attrs().Index)})
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.ENETUNREACH) { // it gets its address in a moment
			r.t.Fatal(err)
		}
	}
}

func (r *router) defaults() (all []netlink.Route) {
	r.t.Helper()
	routes, err := netlink.RouteList(r.near, netlink.FAMILY_V6)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, route := range routes {
		if ones := 0; route.Gw != nil {
			if route.Dst != nil {
				ones, _ = route.Dst.Mask.Size()
			}
			if ones == 0 {
				all = append(all, route)
			}
		}
	}
	return all
}

func (r *router) isDefault() bool { return len(r.defaults()) > 0 }

// A host that got its default route of a router keeps it when it begins to forward for pods,
// hears routers as long as it does, and keeps the route when that ends (N5).
func TestTheDefaultRouteOfARouterStays(t *testing.T) {
	nstest.NeedRoot(t)
	if err := os.WriteFile(forwarding6, []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	r := newRouter(t)
	r.heard()
	n := newNetwork(t, dual(t))
	t.Cleanup(func() { _ = n.Down() })
	if _, err := n.Up(); err != nil {
		t.Fatal(err)
	}
	if !r.isDefault() {
		t.Error("the default route is gone since pods have IPv6")
	}
	for _, route := range r.defaults() {
		if err := netlink.RouteDel(&route); err != nil {
			t.Fatal(err)
		}
	}
	r.heard() // as after the time that the router had given it
	if err := n.Down(); err != nil {
		t.Fatal(err)
	}
	if !r.isDefault() {
		t.Error("the default route is gone since there are no pods")
	}
}
