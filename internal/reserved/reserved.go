// Package reserved decides which addresses and ports of a cluster's hosts its users may not take: those at which its own
// servers answer, such as cluster DNS, kubelets and the API server, and the name servers and gateways that the hosts use.
//
// A user who may write pods and Services in one namespace could otherwise redirect connections of all namespaces, because
// host ports, node ports and external IPs apply to the packets of every pod of a node (CVE-2020-8554 is one such way). The
// decisions are pure functions of [Addresses] and [Ports].
package reserved

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// A Port is a port of a host on which a server of the cluster listens.
type Port struct {
	Protocol corev1.Protocol
	Number   int32
}

// String returns the port as "53/UDP".
func (p Port) String() string { return strconv.Itoa(int(p.Number)) + "/" + string(p.Protocol) }

// Ports are the ports of the cluster's own servers on one host. They are reserved at every address of the host, because
// a rule for another address may apply to loopback and the addresses that clients use as well.
type Ports []Port

// TCP returns TCP ports. Numbers that are not positive are left out.
func TCP(numbers ...int32) Ports { return of(corev1.ProtocolTCP, numbers) }

// UDP returns UDP ports. Numbers that are not positive are left out.
func UDP(numbers ...int32) Ports { return of(corev1.ProtocolUDP, numbers) }

func of(protocol corev1.Protocol, numbers []int32) (ps Ports) {
	for _, n := range numbers {
		if n > 0 {
			ps = append(ps, Port{protocol, n})
		}
	}
	return ps
}

// Has reports whether a port is reserved. An empty protocol is TCP, as in the API.
func (ps Ports) Has(protocol corev1.Protocol, number int32) bool {
	return slices.Contains(ps, Port{cmp.Or(protocol, corev1.ProtocolTCP), number})
}

// Addresses are the addresses that belong to parts of a cluster. The lists are ascending; Nodes may have duplicates, and
// Pods have no network within another ([AddNetworks]). They must not be changed while others use them.
type Addresses struct {
	Nodes   []netip.Addr   // in the status of the Nodes
	Servers []netip.Addr   // of API servers, the endpoints of the Service default/kubernetes
	Host    []netip.Addr   // on links of this host
	Pods    []netip.Prefix // networks of pods; each has the address of a node, too

	// Resolvers are the name servers that cluster DNS and the host ask, and Gateways the routers of the host's default
	// routes. What pods and the host send there would go to the pods of a Service that has such an address.
	Resolvers []netip.Addr
	Gateways  []netip.Addr
}

// Equal reports whether two sets of addresses are the same.
func (a Addresses) Equal(b Addresses) bool {
	return slices.Equal(a.Nodes, b.Nodes) && slices.Equal(a.Servers, b.Servers) && slices.Equal(a.Host, b.Host) && slices.Equal(a.Pods, b.Pods) &&
		slices.Equal(a.Resolvers, b.Resolvers) && slices.Equal(a.Gateways, b.Gateways)
}

// External returns what an address of spec.externalIPs belongs to, such as "a node", or "" if a Service may have it.
func (a Addresses) External(ip netip.Addr) string {
	if of := a.cluster(ip); of != "" {
		return of
	}
	if has(a.Host, ip) {
		return "this host"
	}
	return ""
}

// Balanced returns what an address of a load balancer belongs to, or "" if a Service may have a port of it. Only
// controllers set these addresses, and some, such as kube-vip, add them to links of the host. Such an address may be
// used, except for the ports of the host's own servers.
func (a Addresses) Balanced(ip netip.Addr, own Ports, protocol corev1.Protocol, port int32) string {
	if of := a.cluster(ip); of != "" {
		return of
	}
	if has(a.Host, ip) && own.Has(protocol, port) {
		return "this host, whose port " + Port{cmp.Or(protocol, corev1.ProtocolTCP), port}.String() + " is one of the cluster's own servers"
	}
	return ""
}

func (a Addresses) cluster(ip netip.Addr) string {
	switch {
	case has(a.Nodes, ip):
		return "a node"
	case has(a.Servers, ip):
		return "the API server"
	case within(a.Pods, ip):
		return "the pod network"
	case has(a.Resolvers, ip):
		return "a name server of this host"
	case has(a.Gateways, ip):
		return "a gateway of this host"
	}
	return ""
}

// within reports whether an address is in one of the networks, which are ascending and disjoint.
func within(networks []netip.Prefix, ip netip.Addr) bool {
	i, found := slices.BinarySearchFunc(networks, ip, func(n netip.Prefix, ip netip.Addr) int { return n.Addr().Compare(ip) })
	if !found {
		i-- // the last one that begins before ip
	}
	return i >= 0 && networks[i].Contains(ip)
}

// AddNetworks returns ascending, disjoint networks with more of them added. It does not change the list, and returns it
// if it contains all of them already.
func AddNetworks(sorted []netip.Prefix, more ...netip.Prefix) []netip.Prefix {
	for _, n := range more {
		n = n.Masked()
		if within(sorted, n.Addr()) && slices.ContainsFunc(sorted, func(o netip.Prefix) bool { return o.Bits() <= n.Bits() && o.Contains(n.Addr()) }) {
			continue
		}
		kept := slices.DeleteFunc(slices.Clone(sorted), func(o netip.Prefix) bool { return n.Overlaps(o) })
		i, _ := slices.BinarySearchFunc(kept, n.Addr(), func(o netip.Prefix, a netip.Addr) int { return o.Addr().Compare(a) })
		sorted = slices.Insert(kept, i, n)
	}
	return sorted
}

func has(sorted []netip.Addr, ip netip.Addr) bool {
	_, found := slices.BinarySearchFunc(sorted, ip, netip.Addr.Compare)
	return found
}

// Replace returns an ascending list of addresses with one instance of each old address removed and the new ones added. It
// does not change the list.
func Replace(sorted, old, added []netip.Addr) []netip.Addr {
	next := slices.Clone(sorted)
	for _, a := range old {
		if i, found := slices.BinarySearchFunc(next, a, netip.Addr.Compare); found {
			next = slices.Delete(next, i, i+1)
		}
	}
	for _, a := range added {
		i, _ := slices.BinarySearchFunc(next, a, netip.Addr.Compare)
		next = slices.Insert(next, i, a)
	}
	return next
}
