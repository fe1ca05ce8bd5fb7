// Package cluster starts all components of a cluster in the order of their dependencies
// and connects them: it is the composition root.
//
// The order is: the store; the API server; the objects that every cluster has; the
// components, each of which uses the API as its own user through client.Interface, in
// the same process; the service proxy. The container runtime is a separate process,
// which is adopted after a restart. The cluster is ready when the nodes are Ready and
// the rules of the proxy are in place.
//
// The package makes no decisions about pods or Services.
package cluster
