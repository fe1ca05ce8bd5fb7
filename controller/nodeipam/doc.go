// Package nodeipam gives each Node its part of the pod network (spec.podCIDRs), as the node IPAM controller of
// kube-controller-manager does with --allocate-node-cidrs.
//
// A part is given once: it stays the Node's until the Node is deleted. A Node that was created with podCIDRs keeps them, and
// no other Node gets them.
package nodeipam
