// Package coordination describes the Lease, kind of the group
// coordination.k8s.io, version v1: the sign of life of a node, and the token by
// which one of several programs is the leader.
//
// Leases are renewed all the time, so they are volatile: a write wakes no disk,
// and what was renewed since the last durable write may be lost in a crash.
package coordination
