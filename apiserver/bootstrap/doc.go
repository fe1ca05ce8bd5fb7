// Package bootstrap makes the objects that every cluster has: the namespaces
// default, kube-system, kube-public and kube-node-lease, the service
// default/kubernetes with its endpoints, by which pods find the API server, and
// kube-system/kube-dns if there is a name server.
//
// It keeps them: what is deleted or bent comes back at once. It works through the
// API as anybody else would, and level-triggered: what counts is what is there, not how it
// came about.
//
// The endpoints are those of one API server. Several of them at one store would have to
// agree on a list; that is not done here.
package bootstrap
