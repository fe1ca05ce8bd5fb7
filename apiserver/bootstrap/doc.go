// Package bootstrap makes the objects that every cluster has: the namespaces default, kube-system,
// kube-public and kube-node-lease, the priority classes of the system, the default ServiceCIDR, the service
// default/kubernetes with its endpoints, by which pods find the API server, and kube-system/kube-dns if
// there is a name server.
//
// It restores them at once when they are deleted or changed. It works through the API as any client
// does, and it is level-triggered: it compares the objects with the wanted ones, whatever the
// events were.
//
// The endpoints are those of one API server. Several API servers on one store would have to agree
// on a list; that is not supported.
package bootstrap
