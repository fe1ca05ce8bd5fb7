// Package applied is what service proxies tell of the EndpointSlices that they have
// applied, and node agents read before they send a pod its first signal.
//
// Each proxy keeps one Lease, which its node's object owns. Its annotation says up
// to which revision of EndpointSlices every change is in effect: no new connection
// is made to an endpoint that had been taken out by then, and none that was made
// before is still on its way. It is written only when a service has an endpoint
// that is terminating, because then, and only then, an agent waits for it. A Lease,
// because its writes wake no disk.
//
// The Lease says as well whether the proxy can answer for addresses of load balancers, for the proxies of
// other nodes.
//
// Both sides are in docs/decisions/0008-applied-endpoints.md.
package applied

import (
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/names"
)

const (
	// Namespace is where the Leases of the proxies are.
	Namespace = metav1.NamespaceSystem

	// Label is on the Lease of each proxy; its value is "true".
	Label = names.ServiceProxy

	// Annotation has the revision, in decimal.
	Annotation = names.AppliedEndpoints

	// AnnouncesAnnotation is "true" on the Lease of a proxy that can answer for addresses of load
	// balancers. It is there from before the proxy does until after it has stopped.
	AnnouncesAnnotation = names.AnnouncesAddresses
)

// Announces reports whether a Lease says that its node can answer for addresses of load balancers.
func Announces(l *coordinationv1.Lease) bool { return l.Annotations[AnnouncesAnnotation] == "true" }

// Name returns the name of the Lease of a node's proxy.
func Name(node string) string { return "service-proxy-" + node }

// Selector selects the Leases of the proxies.
func Selector() string { return Label + "=true" }

// Lease returns the Lease of a node's proxy that has applied a revision. Owner is
// the Node, with which it goes; nil leaves it without one.
func Lease(node string, revision uint64, owner *metav1.OwnerReference) *coordinationv1.Lease {
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: Name(node),
			Labels:      map[string]string{Label: "true"},
			Annotations: map[string]string{Annotation: strconv.FormatUint(revision, 10)},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &node},
	}
	if owner != nil {
		l.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return l
}

// Revision returns what a Lease tells. One that tells nothing that can be read has
// applied nothing.
func Revision(l *coordinationv1.Lease) uint64 {
	r, err := strconv.ParseUint(l.Annotations[Annotation], 10, 64)
	if err != nil {
		return 0
	}
	return r
}
