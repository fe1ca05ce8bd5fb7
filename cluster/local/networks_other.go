//go:build !linux || portable

package local

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// claim reports true: the networks of simulated nodes are not those of a kernel, and may be the same in two clusters.
func (c *Claims) claim(netip.Prefix) bool { return true }

// HostRoutes returns the networks of these families (see FreeNetworks) that links of this host are in, but for link-local ones
// and those of the named link. Routes are not read.
func HostRoutes(but string, six []bool) ([]netip.Prefix, error) {
	var taken []netip.Prefix
	err := eachAddress(func(n netip.Prefix, link string) {
		if link != but && !n.Addr().IsLinkLocalUnicast() && slices.Contains(six, n.Addr().Is6()) {
			taken = append(taken, n.Masked())
		}
	})
	return taken, err
}

// hostAddresses are the addresses of this host, by the names of their links, but for those of one.
func hostAddresses(but string) (map[netip.Addr]string, error) {
	all := map[netip.Addr]string{}
	err := eachAddress(func(n netip.Prefix, link string) {
		if link != but {
			all[n.Addr()] = link
		}
	})
	return all, err
}

// eachAddress calls yield with each address of this host, in its network.
func eachAddress(yield func(n netip.Prefix, link string)) error {
	links, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("reading the links of this host: %w", err)
	}
	for i := range links {
		addresses, err := links[i].Addrs()
		if err != nil {
			return fmt.Errorf("reading the addresses of this host: %w", err)
		}
		for _, a := range addresses {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				ones, _ := n.Mask.Size()
				if addr.Is4In6() && len(n.Mask) == net.IPv6len {
					ones -= 96
				}
				yield(netip.PrefixFrom(addr.Unmap(), ones), links[i].Name)
			}
		}
	}
	return nil
}
