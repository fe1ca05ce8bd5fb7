package local

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Networks are the address ranges of a cluster.
type Networks struct {
	Pods     netip.Prefix `json:"pods"`
	Services netip.Prefix `json:"services"`
}

// candidates are tried in this order. The first are what Kubernetes
// distributions commonly use.
var (
	podCandidates     = prefixes("10.244.0.0/16", "10.42.0.0/16", "10.245.0.0/16", "10.246.0.0/16", "10.247.0.0/16", "10.248.0.0/16", "172.30.0.0/16", "192.168.192.0/18")
	serviceCandidates = prefixes("10.96.0.0/16", "10.43.0.0/16", "10.97.0.0/16", "10.98.0.0/16", "10.99.0.0/16", "10.100.0.0/16", "172.31.0.0/16", "192.168.128.0/18")
)

func prefixes(list ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, s := range list {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

// FreeNetworks returns networks that overlap none of the given ones.
func FreeNetworks(taken []netip.Prefix) (Networks, error) {
	pods, ok := firstFree(podCandidates, taken)
	if !ok {
		return Networks{}, fmt.Errorf("no free network for pods: each of %v overlaps a route of this host; say one with --pod-network", podCandidates)
	}
	services, ok := firstFree(serviceCandidates, append(taken, pods))
	if !ok {
		return Networks{}, fmt.Errorf("no free network for services: each of %v overlaps a route of this host; say one with --service-network", serviceCandidates)
	}
	return Networks{Pods: pods, Services: services}, nil
}

func firstFree(candidates, taken []netip.Prefix) (netip.Prefix, bool) {
next:
	for _, c := range candidates {
		for _, t := range taken {
			if t.Overlaps(c) {
				continue next
			}
		}
		return c, true
	}
	return netip.Prefix{}, false
}

// HostRoutes returns the networks that this host has a route or an address for,
// but for the default route and those through the named link.
func HostRoutes(but string) ([]netip.Prefix, error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("reading the routes of this host: %w", err)
	}
	own := -1
	if l, err := netlink.LinkByName(but); err == nil {
		own = l.Attrs().Index
	}
	var taken []netip.Prefix
	for _, r := range routes {
		if r.Dst == nil || r.LinkIndex == own {
			continue
		}
		a, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		ones, _ := r.Dst.Mask.Size()
		if ok && ones > 0 {
			taken = append(taken, netip.PrefixFrom(a, ones))
		}
	}
	return taken, nil
}
