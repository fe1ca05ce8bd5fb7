package simulation

import (
	"fmt"
	"math/bits"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// NodeBits returns the length of the prefix of each node's part of the pod network: 24
// as everywhere, or less if the pods of a node need more addresses.
func (p *Plan) NodeBits() int {
	const usual, others = 24, 3 // the network's own address, the gateway's, and the broadcast address
	var most int64
	for i := range p.groups {
		q := p.groups[i].capacity[corev1.ResourcePods]
		most = max(most, q.Value())
	}
	return min(usual, 32-bits.Len64(uint64(most+others-1)))
}

// Room returns an error unless a network has enough addresses for all nodes and their
// pods.
func (p *Plan) Room(network netip.Prefix) error {
	if !network.IsValid() || !network.Addr().Is4() {
		return fmt.Errorf("%v is no IPv4 network for pods", network)
	}
	width := p.NodeBits()
	if width < network.Bits() || p.Len() > 1<<(width-network.Bits()) {
		return fmt.Errorf("the pod network %v has no room for %d nodes with a /%d each; --pod-network says a larger one, such as 10.0.0.0/8", network, p.Len(), width)
	}
	return nil
}
