// Package coordination describes the Lease, kind of the group
// coordination.k8s.io, version v1: the sign of life of a node, and the token by
// which one of several programs is the leader.
package coordination
