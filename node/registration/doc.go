// Package registration registers a node in the cluster and keeps its Node object and its lease up to date.
//
// A [Registrar] makes the Node object as soon as the state of the container runtime is known, writes its status when a part of it has
// changed and from time to time, and renews the lease. It owns the state of the runtime as the condition Ready shows it. What the parts of
// the node have in the status comes from functions: the package knows none of them.
package registration
