package local

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/sampan-io/sampan/internal/sorting"
)

// Networks are the address ranges of a cluster.
type Networks struct {
	Pods     Pair `json:"pods"`
	Services Pair `json:"services"`
}

// candidates are tried in this order. The first are what Kubernetes
// distributions commonly use. Those of IPv6 are made up, see uniqueLocal.
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

// Release gives all networks back.
func (c *Claims) Release() {
	for _, l := range c.held {
		_ = l.Close() // it has done nothing that could go wrong
	}
	c.held = nil
}

// FreeNetworks returns networks that overlap none of the given ones, one for each family
// (six says whether it is IPv6), that are large enough for the pods (nil: of the nodes of this
// machine), and that the claims got; nil claims none.
func FreeNetworks(six []bool, taken []netip.Prefix, fits func(pods netip.Prefix) bool, claims *Claims) (Networks, error) {
	var found Networks
	taken = slices.Clone(taken)
	for i, six := range six {
		if six {
			found.Pods[i], found.Services[i] = uniqueLocal(taken)
			continue
		}
		candidates := podCandidates
		if fits != nil {
			candidates = slices.DeleteFunc(slices.Concat(podCandidates, wideCandidates), func(n netip.Prefix) bool { return !fits(n) })
		}
		pods, ok := firstFree(candidates, taken, claims)
		if !ok {
			return Networks{}, fmt.Errorf("no free network for pods: each of %v overlaps a route of this host; pass one with --pod-network", candidates)
		}
		services, ok := firstFree(serviceCandidates, append(taken, pods), claims)
		if !ok {
			return Networks{}, fmt.Errorf("no free network for services: each of %v overlaps a route of this host; pass one with --service-network", serviceCandidates)
		}
		found.Pods[i], found.Services[i] = pods, services
	}
	return found, nil
}

// uniqueLocal returns IPv6 networks below a random one of the 2⁴⁰ prefixes of RFC 4193,
// so that they stay unique when networks are joined. The pod network has the size that is
// usual for a cluster: 256 nodes with a /64 each.
func uniqueLocal(taken []netip.Prefix) (pods, services netip.Prefix) {
	for {
		a := [16]byte{0: 0xfd}
		_, _ = rand.Read(a[1:6]) // never fails
		if site := netip.PrefixFrom(netip.AddrFrom16(a), 48); slices.ContainsFunc(taken, site.Overlaps) {
			continue
		}
		pods = netip.PrefixFrom(netip.AddrFrom16(a), 56)
		a[6], a[7] = 0xff, 0xff // its last /64
		return pods, netip.PrefixFrom(netip.AddrFrom16(a), 112)
	}
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

// checkHost returns an error if a requested network contains an address of this host: pods
// could not reach that address, or it could not be distinguished from a pod. Addresses of the
// link but are the cluster's own.
func (s Settings) checkHost(but string) error {
	addresses, err := hostAddresses(but)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range sorting.Sorted(maps.Keys(addresses), netip.Addr.Compare) {
		for _, f := range s.flags() {
			for _, n := range f.All() {
				if n.Contains(a) {
					errs = append(errs, fmt.Errorf("%s %v: contains the address %v of this host; pass another network, or leave the flag out for a free one", f.flag, n, a))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// checkPool returns an error if the addresses for load balancers contain the address at which other machines reach this node:
// Services must not take the connections of a node, so they would not get it.
func (s Settings) checkPool() error {
	pool, err := s.Pool()
	if err != nil || pool.Empty() || s.Simulated() {
		return err
	}
	for _, a := range s.Advertised() {
		if pool.Holds(a) {
			return fmt.Errorf("--load-balancer-addresses %s: contains the address of this node, %v (--advertise-address), which no Service can have; leave it out", s.LoadBalancerAddresses, a)
		}
	}
	return nil
}

// CheckBridge returns an error if another link has the address of the stopped cluster's bridge,
// because its networks were taken meanwhile.
func (p Profile) CheckBridge(pods Pair) error {
	addresses, err := hostAddresses(p.Bridge())
	if err != nil {
		return err
	}
	for _, n := range pods.All() {
		if link, taken := addresses[n.Masked().Addr().Next()]; taken {
			return fmt.Errorf("the pod network %v of the cluster in %s is in use: link %s of this host has its first address; stop the cluster of that link, or remove the cluster in %s with `sampan down --purge`, and a new one gets free networks", n, p.DataDir, link, p.DataDir)
		}
	}
	return nil
}
