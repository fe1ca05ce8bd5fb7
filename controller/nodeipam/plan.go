package nodeipam

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// A Network is a pod network of the cluster, divided among nodes.
type Network struct {
	Parts int // how many nodes have a part
	Part  func(i int) netip.Prefix
}

// free returns a part of each network that overlaps none of the used ones. It returns false if a network has none left.
func free(networks []Network, used []netip.Prefix) ([]string, bool) {
	var found []string
	for _, n := range networks {
		ok := false
		for i := range n.Parts {
			if p := n.Part(i); !overlaps(p, used) {
				found, ok = append(found, p.String()), true
				break
			}
		}
		if !ok {
			return nil, false
		}
	}
	return found, true
}

func overlaps(p netip.Prefix, used []netip.Prefix) bool {
	for _, u := range used {
		if u.Overlaps(p) {
			return true
		}
	}
	return false
}

// usedBy returns the networks of a Node's pods. Text that is no network is ignored: validation does not let it in.
func usedBy(node *corev1.Node) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p.Masked())
		}
	}
	return all
}
