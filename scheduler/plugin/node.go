package plugin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Node is a node and what its pods have taken. Plug-ins only read it; the
// scheduler keeps it current with Set, Add and Remove.
type Node struct {
	*corev1.Node
	Allocatable Resources

	Pods      int // that run or will run there
	Requested Resources
	Presumed  Resources         // see [Pod]
	Ports     []HostPort        // in use
	Owned     map[types.UID]int // pods by their controller
}

// Set gives n another state of its node object, which must not change afterwards.
func (n *Node) Set(obj *corev1.Node) {
	n.Node, n.Allocatable = obj, NewResources(obj.Status.Allocatable)
}

// Add counts a pod in.
func (n *Node) Add(p *Pod) {
	n.Pods++
	n.Requested.Add(p.Requests)
	n.Presumed.Add(p.Presumed)
	n.Ports = append(n.Ports, p.Ports...)
	if p.Owner != "" {
		if n.Owned == nil {
			n.Owned = map[types.UID]int{}
		}
		n.Owned[p.Owner]++
	}
}

// Remove counts a pod out that was counted in.
func (n *Node) Remove(p *Pod) {
	n.Pods--
	n.Requested.Sub(p.Requests)
	n.Presumed.Sub(p.Presumed)
	for _, h := range p.Ports {
		if i := slices.Index(n.Ports, h); i >= 0 {
			n.Ports = slices.Delete(n.Ports, i, i+1)
		}
	}
	if p.Owner != "" {
		if n.Owned[p.Owner]--; n.Owned[p.Owner] == 0 {
			delete(n.Owned, p.Owner)
		}
	}
}
