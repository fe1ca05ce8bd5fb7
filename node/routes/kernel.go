package routes

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// protocol marks the routes of this package (rtm_protocol, rtnetlink(7)). It is one of the numbers that no program has in
// rt_protos of iproute2.
const protocol = 83

// refusal is the metric of the route that refuses packets: any other route to the same network comes first.
const refusal = 4096

// apply makes the routes of this host within the pod networks what they should be. It returns which of them the links of this
// host do not permit, which may change with these.
func apply(pods []netip.Prefix, want []Route) (faults []string, err error) {
	have, err := present(pods)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, r := range want {
		if i := slices.IndexFunc(have, func(h netlink.Route) bool { return same(h, r) }); i >= 0 {
			have = slices.Delete(have, i, i+1)
			continue
		}
		route := netlink.Route{Dst: ipNet(r.To), Protocol: protocol}
		if r.Via.IsValid() {
			route.Gw = r.Via.AsSlice()
		} else {
			route.Type, route.Priority = unix.RTN_UNREACHABLE, refusal
		}
		switch err := netlink.RouteReplace(&route); {
		case errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH):
			faults = append(faults, fmt.Sprintf("no route to the pods in %s: the address of their node, %s, is not on a link of this host", r.To, r.Via))
		case err != nil:
			errs = append(errs, fmt.Errorf("route to the pods in %s by %s: %w", r.To, r.Via, err))
		}
	}
	for _, h := range have {
		if h.Type != unix.RTN_UNREACHABLE && slices.ContainsFunc(want, func(r Route) bool { return r.Via.IsValid() && prefix(h.Dst) == r.To }) {
			continue // it was replaced
		}
		if err := netlink.RouteDel(&h); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("removing the route to %s: %w", h.Dst, err))
		}
	}
	return faults, errors.Join(errs...)
}

// same reports whether a route of the kernel is a wanted one.
func same(h netlink.Route, r Route) bool {
	if prefix(h.Dst) != r.To {
		return false
	}
	if !r.Via.IsValid() {
		return h.Type == unix.RTN_UNREACHABLE
	}
	via, _ := netip.AddrFromSlice(h.Gw)
	return h.Type != unix.RTN_UNREACHABLE && via.Unmap() == r.Via
}

// present returns the routes of this package within the pod networks.
func present(pods []netip.Prefix) ([]netlink.Route, error) {
	var found []netlink.Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := netlink.RouteListFiltered(family, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			return nil, fmt.Errorf("reading the routes of this host: %w", err)
		}
		for _, r := range all {
			if to := prefix(r.Dst); to.IsValid() && slices.ContainsFunc(pods, func(p netip.Prefix) bool { return p.Bits() <= to.Bits() && p.Contains(to.Addr()) }) {
				found = append(found, r)
			}
		}
	}
	return found, nil
}

// Remove removes all routes within the pod networks of a cluster.
func Remove(pods []netip.Prefix) error {
	_, err := apply(pods, nil)
	return err
}

// prefix is the opposite of ipNet; it returns the zero Prefix for nil.
func prefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	a, _ := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
