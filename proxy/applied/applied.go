// Package applied defines the Leases in which service proxies report the EndpointSlices that they
// have applied. Node agents read them before they send a pod its first signal.
//
// Each proxy has one Lease, owned by its Node. Its annotation is a revision of EndpointSlices up to
// which every change is in effect: no new connection is made to an endpoint that had been removed
// by then, and no connection that was made before is still under way. The proxy writes it only
// while a Service has a terminating endpoint, because only then an agent waits for it. It is a
// Lease because the store does not sync writes of Leases to disk.
//
// The Lease also says whether the proxy can answer for addresses of load balancers; the proxies of
// other nodes read that.
//
// Both sides are described in docs/decisions/0008-applied-endpoints.md.
package applied

import (
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/names"
)

const (
	// Namespace is the namespace of the proxies' Leases.
	Namespace = metav1.NamespaceSystem

	// Label is on the Lease of each proxy; its value is "true".
	Label = names.ServiceProxy

	// Annotation is the revision, in decimal.
	Annotation = names.AppliedEndpoints

	// AnnouncesAnnotation is "true" on the Lease of a proxy that can answer for addresses of load
	// balancers. It is set before the proxy does so and removed after it has stopped.
	AnnouncesAnnotation = names.AnnouncesAddresses
)

// Announces reports whether the node of a Lease can answer for addresses of load balancers.
func Announces(l *coordinationv1.Lease) bool { return l.Annotations[AnnouncesAnnotation] == "true" }

// Name returns the name of the Lease of a node's proxy.
func Name(node string) string { return "service-proxy-" + node }

// Selector selects the Leases of the proxies.
func Selector() string { return Label + "=true" }

// Lease returns the Lease of a node's proxy that has applied a revision. Owner is the Node that
// owns it, or nil.
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

// Revision returns the revision that a Lease reports, or 0 if it has none or it is malformed.
func Revision(l *coordinationv1.Lease) uint64 {
	r, err := strconv.ParseUint(l.Annotations[Annotation], 10, 64)
	if err != nil {
		return 0
	}
	return r
}
