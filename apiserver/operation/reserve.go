package operation

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// reserveOf returns how far beyond the quota of the store a write of a user may go. update says that the object exists.
//
// A cluster that is over its quota has to go on to renew Leases and the status of nodes, or its pods are evicted, and has
// to write the end of pods and namespaces, or nothing becomes free. Controllers and the scheduler may update the objects
// that exist, such as the endpoints of a Service. They may not create objects beyond the quota, because a user makes them
// create as many as a Deployment has replicas; nor may the server itself, which writes an IPAddress for each Service. A node
// may update its Node and the status of its pods. The administrator needs a few writes, too, to scale a workload down or to
// set a ResourceQuota, but only the lesser reserve: what kubectl creates beyond the quota must not take what the cluster
// needs. Leases have no bound, because there is one for each node and a few more, and a renewal needs a few bytes at most.
func reserveOf(t *Target, update bool) store.Reserve {
	u := t.User
	if u == nil {
		return store.NoReserve
	}
	_, node := u.Node()
	switch own := node || controlsCluster(u); {
	case u.In(auth.GroupMasters) && !isServer(u):
		return store.ForAdministration
	case !own:
		return store.NoReserve
	}
	switch t.Kind.GR() {
	case schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}:
		return store.ForMark
	case schema.GroupResource{Resource: "nodes"}:
		return store.ForRecovery
	case schema.GroupResource{Resource: "pods"}:
		// A status has bounds of its own: there are so many containers, each with a message of a few KiB.
		if node && t.SubName() == "status" {
			return store.ForRecovery
		}
	case schema.GroupResource{Resource: "namespaces"}:
		if !node {
			return store.ForRecovery
		}
	}
	if update && !node {
		return store.ForRecovery
	}
	return store.NoReserve
}

// accountOf returns what shares the memory that is left when the quota is nearly used up: a namespace, with the objects that are
// made for those in it; a user who writes other objects; or one object that a controller writes.
func accountOf(t *Target, obj catalog.Object) string {
	namespace := t.Namespace
	switch obj := obj.(type) {
	case *networkingv1.IPAddress:
		if obj.Spec.ParentRef != nil {
			namespace = obj.Spec.ParentRef.Namespace
		}
	case *corev1.PersistentVolume:
		if obj.Spec.ClaimRef != nil {
			namespace = obj.Spec.ClaimRef.Namespace
		}
	}
	switch {
	case namespace != "":
		return "namespace " + namespace
	case t.User != nil && !controlsCluster(t.User):
		return "user " + t.User.Name
	}
	return t.Key()
}

// isServer reports whether the user is the API server itself. It has all rights, and writes for others.
func isServer(u *auth.User) bool {
	return u.Name == "system:apiserver" || u.Name == "system:kube-aggregator"
}

// controlsCluster reports whether the user is a controller, the scheduler or another part of the control plane. Users
// with rights in a namespace of their own cannot become one.
func controlsCluster(u *auth.User) bool {
	return isServer(u) || strings.HasPrefix(u.Name, "system:kube-") || strings.HasPrefix(u.Name, auth.ServiceAccountUser("kube-system", ""))
}
