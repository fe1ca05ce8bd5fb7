package routes

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/sorting"
)

// A Route leads to the pods of a node.
type Route struct {
	To  netip.Prefix
	Via netip.Addr // invalid: packets are refused
}

// Plan returns the routes that a node needs, sorted, and what is wrong with other nodes. Pods are the pod networks of the
// cluster, own those of this node.
func Plan(nodes []*corev1.Node, self string, pods, own []netip.Prefix) (routes []Route, faults []string) {
	for _, p := range pods {
		routes = append(routes, Route{To: p.Masked()})
	}
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	taken := slices.Clone(own)
	for _, node := range nodes {
		if node.Name == self {
			continue
		}
		for _, text := range node.Spec.PodCIDRs {
			to, err := netip.ParsePrefix(text)
			if err != nil {
				continue // validation does not let it in
			}
			to = to.Masked()
			if i := slices.IndexFunc(taken, to.Overlaps); i >= 0 {
				faults = append(faults, fmt.Sprintf("the pod network %s of node %s overlaps %s of another node", to, node.Name, taken[i]))
				continue
			}
			if !slices.ContainsFunc(pods, func(p netip.Prefix) bool { return p.Bits() < to.Bits() && p.Contains(to.Addr()) }) {
				faults = append(faults, fmt.Sprintf("the pod network %s of node %s is not within those of the cluster, %v", to, node.Name, pods))
				continue
			}
			via := address(node, to.Addr().Is4(), pods)
			if !via.IsValid() {
				continue // it has not said where it is, or another kind of network connects its pods
			}
			taken = append(taken, to)
			routes = append(routes, Route{to, via})
		}
	}
	sorting.Slice(routes, func(a, b Route) int { return a.To.Compare(b.To) })
	return routes, faults
}

// address returns the first internal address of a node in an IP family that is not among the pods.
func address(node *corev1.Node, four bool, pods []netip.Prefix) netip.Addr {
	for _, a := range node.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if a.Type != corev1.NodeInternalIP || err != nil || ip.Is4() != four || !ip.IsGlobalUnicast() {
			continue
		}
		if !slices.ContainsFunc(pods, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			return ip
		}
	}
	return netip.Addr{}
}
