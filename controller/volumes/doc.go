// Package volumes is the controllers of claims and volumes: the binder, which brings PersistentVolumeClaims and PersistentVolumes
// together and keeps their phases; the protection of both while they are in use; and the maker of claims for generic
// ephemeral volumes.
//
// What is to be done is a pure function of a claim ([planClaim]) or a volume ([planVolume]) and what it sees of the cluster, and
// tested with stories. Which volume fits is in package claim, and is the same for the scheduler. The words of events are
// upstream's, and so are annotations and finalizers: external provisioners and upstream's scheduler work with this
// binder, and our scheduler with upstream's.
//
//	V1  A claim gets the volume that is reserved for it, else the smallest that fits, among those with the fewest modes of
//	    access. One of a class that waits for its first consumer gets no other than a reserved one:
//	    the scheduler reserves it.
//	V2  Binding writes the volume first (claimRef with the claim's UID), then the claim; each step is taken if it lacks, so
//	    that it goes on where it ended.
//	V3  A claim that was bound and has no volume any more is Lost, for good. A volume whose claim is gone is Released, and
//	    nobody's: what is on it belongs to whoever wrote it. Whether a claim is gone is asked of the server.
//	V4  Nothing is deleted here. A volume to be deleted is left to who made it, or is Failed if nobody can.
//	V5  A claim that a pod with a node names stays until there is none; a volume, as long as it is Bound.
//	V6  An event is told once, and again when there is something else to tell.
//
// Making volumes is for provisioners; package node/localdisk is one.
package volumes
