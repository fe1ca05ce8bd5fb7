package simulation

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// Lengths of the prefixes of nodes' networks, as everywhere.
const usual4, usual6 = 24, 64

// NodeBits returns the length of the prefix of each node's part of a pod network: as
// everywhere, which is 24 or, of IPv6, 64; but a network of IPv6 has parts for 256 nodes
// at least.
func NodeBits(pods netip.Prefix) int {
	if pods.Addr().Is4() {
		return usual4
	}
	return max(usual6, pods.Bits()+8)
}

// NodeNetwork returns the i-th part with a prefix of so many bits of a pod network, which
// must have it.
func NodeNetwork(pods netip.Prefix, bits, i int) netip.Prefix {
	b := pods.Masked().Addr().AsSlice()
	v := uint64(i) << ((8 - bits%8) % 8)
	for k := (bits - 1) / 8; v > 0; k-- {
		b[k] |= byte(v)
		v >>= 8
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, bits)
}

// Plus returns the n-th address after a, of which the last four bytes have room for n.
func Plus(a netip.Addr, n uint32) netip.Addr {
	b := a.AsSlice()
	last := b[len(b)-4:]
	binary.BigEndian.PutUint32(last, binary.BigEndian.Uint32(last)+n)
	a, _ = netip.AddrFromSlice(b)
	return a
}

// NodeRoom returns how many bits there are for the addresses of a node: 8 as everywhere, or
// more if its pods need more addresses.
func (p *Plan) NodeRoom() int {
	const usual, others = 32 - usual4, 3 // the network's own address, the gateway's, and the broadcast address
	var most int64
	for i := range p.groups {
		q := p.groups[i].capacity[corev1.ResourcePods]
		most = max(most, q.Value())
	}
	return max(usual, bits.Len64(uint64(most+others-1)))
}

// NodeBits returns the length of the prefix of each node's part of a pod network: as
// [NodeBits] says, or less if the pods of a node need more addresses, or more if there are
// more nodes than parts of IPv6.
func (p *Plan) NodeBits(pods netip.Prefix) int {
	if pods.Addr().Is4() {
		return 32 - p.NodeRoom()
	}
	return max(NodeBits(pods), pods.Bits()+bits.Len(uint(p.Len()-1)))
}

// Room returns an error unless each of the networks has enough addresses for all nodes and
// their pods.
func (p *Plan) Room(networks ...netip.Prefix) error {
	if len(networks) == 0 {
		return fmt.Errorf("pod network is empty: want at least one")
	}
	for _, n := range networks {
		if !n.IsValid() || n.Addr().Is4In6() {
			return fmt.Errorf("%v is not a valid pod network", n)
		}
		width, larger := p.NodeBits(n), "10.0.0.0/8"
		if n.Addr().Is6() {
			larger = "fd00:10:244::/48"
		}
		if width < n.Bits() || width > n.Addr().BitLen()-p.NodeRoom() || p.Len() > 1<<(width-n.Bits()) {
			return fmt.Errorf("the pod network %v is too small for %d nodes with a /%d each; set a larger one with --pod-network, such as %s", n, p.Len(), width, larger)
		}
	}
	return nil
}
