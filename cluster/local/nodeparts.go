package local

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/sampan-io/sampan/simulation"
)

// A part of a pod network has addresses that no pod gets: its own, that of the node, and the broadcast address.
const noPods = 3

// defaultMask returns the length of the prefix of a node's part of an IPv4 pod network with addresses for so many pods, but
// the usual one at most.
func defaultMask(pods int) int {
	usual := simulation.NodeBits(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	return min(usual, 32-bits.Len(uint(max(pods, 0)+noPods-1)))
}

// NodeBits returns the length of the prefix of each node's part of a pod network.
func (s Settings) NodeBits(pods netip.Prefix) int {
	if pods.Addr().Is4() && s.NodeMaskSize != 0 {
		return s.NodeMaskSize
	}
	return simulation.NodeBits(pods)
}

// NodeNetworks returns the parts of the i-th node of the pod networks, the primary one first.
func (s Settings) NodeNetworks(i int) []netip.Prefix {
	var all []netip.Prefix
	for _, n := range s.Pods.All() {
		all = append(all, simulation.NodeNetwork(n, s.NodeBits(n), i))
	}
	return all
}

// PodRoom returns how many pods have addresses in a node's parts of pod networks.
func PodRoom(networks []netip.Prefix) int {
	const most = 30 // bits; more pods than a node has
	room := 1 << most
	for _, n := range networks {
		room = min(room, 1<<min(most, n.Addr().BitLen()-n.Bits())-noPods)
	}
	return max(room, 0)
}

// nodeRoom returns an error if a pod network has no part for a node.
func (s Settings) nodeRoom() error {
	if s.NodeMaskSize != 0 && !slices.ContainsFunc(s.Pods.All(), func(n netip.Prefix) bool { return n.Addr().Is4() }) {
		return fmt.Errorf("--node-cidr-mask-size: is the length of parts of an IPv4 pod network, and the pod network is %v; parts of an IPv6 network are /%d", s.Pods, simulation.NodeBits(netip.PrefixFrom(netip.IPv6Unspecified(), 0)))
	}
	for _, n := range s.Pods.All() {
		if width := s.NodeBits(n); width < n.Bits() {
			return fmt.Errorf("--node-cidr-mask-size: the pod network %v is too small for parts of /%d: pass a larger one with --pod-network, or a longer mask", n, width)
		}
	}
	return nil
}
