package plugin

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Node is a node and the resources of its pods. Plug-ins only read it; [Cluster] keeps it current.
type Node struct {
	*corev1.Node
	Allocatable Resources
	Images      map[string]int64 // size in bytes, by each of the names

	Pods      []*Pod // that run or will run there, in no particular order
	Requested Resources
	Presumed  Resources         // see [Pod]
	Ports     []HostPort        // in use
	Owned     map[types.UID]int // pods by their controller

	slot       int32
	generation uint64
	promised   []*Pod // that are promised room here, most important first
}

// Slot is a small number that no other node of the Snapshot has now. It is not the index in
// [Snapshot.Nodes].
func (n *Node) Slot() int { return int(n.slot) }

// Generation changes whenever something about the node does, and is never the same for two states.
func (n *Node) Generation() uint64 { return n.generation }

// set gives n another state of its node object, which must not change afterwards.
func (n *Node) set(obj *corev1.Node) {
	n.Node, n.Allocatable, n.Images = obj, NewResources(obj.Status.Allocatable), nil
	for i := range obj.Status.Images {
		for _, name := range obj.Status.Images[i].Names {
			if n.Images == nil {
				n.Images = map[string]int64{}
			}
			n.Images[name] = obj.Status.Images[i].SizeBytes
		}
	}
}

// add counts a pod in.
func (n *Node) add(p *Pod) {
	n.Pods = append(n.Pods, p)
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

// remove counts a pod out that was counted in, and reports whether it was.
func (n *Node) remove(p *Pod) bool {
	i := slices.Index(n.Pods, p)
	if i < 0 {
		return false
	}
	last := len(n.Pods) - 1
	n.Pods[i], n.Pods[last] = n.Pods[last], nil
	n.Pods = n.Pods[:last]
	n.Requested.Sub(p.Requests)
	n.Presumed.Sub(p.Presumed)
	n.Ports = without(n.Ports, p.Ports)
	if p.Owner != "" {
		if n.Owned[p.Owner]--; n.Owned[p.Owner] == 0 {
			delete(n.Owned, p.Owner)
		}
	}
	return true
}

// ImageName returns the name under which an image of a container stands in [Node].Images: with
// ":latest" if it has neither tag nor digest.
func ImageName(image string) string {
	if strings.LastIndexByte(image, ':') <= strings.LastIndexByte(image, '/') {
		return image + ":latest"
	}
	return image
}
