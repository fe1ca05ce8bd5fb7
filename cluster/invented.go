package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/apiserver/forward"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/simulation"
)

// inventedAddresses returns what refuses to dial the addresses of simulated pods, or nil in a cluster without simulated
// nodes. No packet comes to such a pod: the routes of this host lead elsewhere, possibly to another machine that has the
// address, and users choose the requests of the API server to it.
//
// In such a cluster the networks of pods are those of simulated nodes, except the networks in the Node of another kubelet.
func (c *cluster) inventedAddresses(objects forward.Objects) func(context.Context, netip.Addr) error {
	if !c.Settings.Simulated() {
		return nil
	}
	networks := c.Settings.Pods.All()
	return func(ctx context.Context, a netip.Addr) error {
		if !slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) }) {
			return nil
		}
		nodes, err := objects.List(ctx, corev1.SchemeGroupVersion.WithResource("nodes"), "", nil)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(nodes, func(o catalog.Object) bool { return hasPodsAt(o, a) }) {
			return nil
		}
		return apierrors.NewServiceUnavailable(fmt.Sprintf("%s is the address of a pod on a simulated node: such pods have no network", a))
	}
}

// hasPodsAt reports whether an object is a node that is not simulated and gives its pods addresses like a.
func hasPodsAt(o catalog.Object, a netip.Addr) bool {
	node, ok := o.(*corev1.Node)
	return ok && !simulation.Simulated(node) && slices.ContainsFunc(node.Spec.PodCIDRs, func(text string) bool {
		n, err := netip.ParsePrefix(text)
		return err == nil && n.Contains(a)
	})
}
