// Package coordination describes the Lease, kind of the group
// coordination.k8s.io, version v1: the sign of life of a node, and the token by
// which one of several programs is the leader.
//
// Leases are renewed all the time, so a renewal, which changes nothing but
// spec.renewTime, is volatile: it does not write to the disk, and a crash may lose it.
// All other writes, such as a change of the holder, are durable.
package coordination
