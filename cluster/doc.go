// Package cluster is the composition root: it makes every part of a cluster, hands
// each what it needs, and runs them in order.
//
// The order is the order of dependence: the store; the API server on it; the
// objects that every cluster has; the workers, which all see the cluster through
// client.Interface as a user of their own, in process; the service proxy. The
// container runtime is a process of its own that is found again after a restart.
// When the nodes are Ready and the rules of the proxy stand, the cluster is.
//
// Nothing here decides anything about pods or services; what is written here could
// be read as a table of who knows whom.
package cluster
