// Package node describes the RuntimeClass, kind of the group node.k8s.io, version v1: with which
// handler of its node's container runtime a pod is run.
//
// The handler of a class never changes.
package node
