//go:build !portable

package local

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/sampan-io/sampan/internal/netdump"
)

// claim reports whether the network was free, and claims it.
func (c *Claims) claim(n netip.Prefix) bool {
	if c == nil {
		return true
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@sampan-network-" + n.String(), Net: "unix"})
	if err != nil {
		return false
	}
	c.held = append(c.held, l)
	return true
}

// HostRoutes returns the networks of these families (see FreeNetworks) that this host has
// a route or an address for, but for default and link-local routes and those through the named link.
func HostRoutes(but string, six []bool) ([]netip.Prefix, error) {
	var routes []netlink.Route
	for _, six := range six {
		family := netlink.FAMILY_V4
		if six {
			family = netlink.FAMILY_V6
		}
		found, err := netdump.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, family) })
		if err != nil {
			return nil, fmt.Errorf("reading the routes of this host: %w", err)
		}
		routes = append(routes, found...)
	}
	own := linkIndex(but)
	var taken []netip.Prefix
	for _, r := range routes {
		if r.Dst == nil || r.LinkIndex == own {
			continue
		}
		a, ok := netip.AddrFromSlice(r.Dst.IP)
		ones, _ := r.Dst.Mask.Size()
		if ok && ones > 0 && !a.Unmap().IsLinkLocalUnicast() {
			taken = append(taken, netip.PrefixFrom(a.Unmap(), ones))
		}
	}
	return taken, nil
}

// linkIndex returns the index of a link, or -1.
func linkIndex(name string) int {
	if l, err := netlink.LinkByName(name); err == nil {
		return l.Attrs().Index
	}
	return -1
}

// hostAddresses are the addresses of this host, by the names of their links, but for those of one.
func hostAddresses(but string) (map[netip.Addr]string, error) {
	links, err := netdump.Whole(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("reading the links of this host: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	addresses, err := netdump.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of this host: %w", err)
	}
	all := map[netip.Addr]string{}
	for _, addr := range addresses {
		if a, ok := netip.AddrFromSlice(addr.IP); ok && names[addr.LinkIndex] != but {
			all[a.Unmap()] = names[addr.LinkIndex]
		}
	}
	return all, nil
}
