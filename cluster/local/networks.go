package local

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

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
	// For more nodes than the others have room for, which are simulated: the addresses
	// are imagined.
	wideCandidates = prefixes("100.64.0.0/10", "10.0.0.0/8")
)

func prefixes(list ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, s := range list {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

// Claims hold networks that were chosen and have no route yet, so that clusters
// that start at the same time choose different ones. The zero Claims hold none; nil
// ones get whatever they ask for. They end with the process.
//
// A claim is a listening unix socket with an abstract name: such a name is taken by one
// process at a time, in one network namespace, as a route is.
type Claims struct{ held []net.Listener }

// claim reports whether the network was nobody's and is held now.
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

// Release gives all networks back.
func (c *Claims) Release() {
	for _, l := range c.held {
		_ = l.Close() // it has done nothing that could go wrong
	}
	c.held = nil
}

// FreeNetworks returns networks that overlap none of the given ones, that are large
// enough for the pods (nil: of the nodes of this machine), and that the claims got; nil
// claims none.
func FreeNetworks(taken []netip.Prefix, fits func(pods netip.Prefix) bool, claims *Claims) (Networks, error) {
	candidates := podCandidates
	if fits != nil {
		candidates = slices.DeleteFunc(slices.Concat(podCandidates, wideCandidates), func(n netip.Prefix) bool { return !fits(n) })
	}
	pods, ok := firstFree(candidates, taken, claims)
	if !ok {
		return Networks{}, fmt.Errorf("no free network for pods: each of %v overlaps a route of this host; say one with --pod-network", candidates)
	}
	services, ok := firstFree(serviceCandidates, append(taken, pods), claims)
	if !ok {
		return Networks{}, fmt.Errorf("no free network for services: each of %v overlaps a route of this host; say one with --service-network", serviceCandidates)
	}
	return Networks{Pods: pods, Services: services}, nil
}

func firstFree(candidates, taken []netip.Prefix, claims *Claims) (netip.Prefix, bool) {
next:
	for _, c := range candidates {
		for _, t := range taken {
			if t.Overlaps(c) {
				continue next
			}
		}
		if claims.claim(c) {
			return c, true
		}
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
