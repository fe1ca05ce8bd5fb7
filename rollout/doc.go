// Package rollout replaces the pods of a ReplicationController by others, a few at
// a time, from the client's side.
//
// [Plan] is the heart: a pure function from how many pods there are, of which
// controller and how ready, to the next step. Around it stands [Updater], which
// does one API call after the other. Nothing is kept in memory that matters:
// where an update stands is written on the two controllers, so a killed one is
// resumed by running it again, from after any call.
//
//	R1  No step takes ready pods below the minimum: desired − unavailable.
//	R2  No step lets more pods exist than the maximum: desired + surge. Pods that
//	    are being deleted are no capacity and count for neither.
//	R3  Every step is worth its while: from every state, the plan ends, in the same
//	    state as from every other.
//	R4  A write is made on what was read (resource version, UID); two updaters at
//	    once do each other no harm.
//	R5  The rename restarts no pod: the new controller lets go of its pods, and
//	    one call later the old one has them.
//
// What stands on the controllers, as kubectl rolling-update wrote it: on the old
// one which controller is next and how many replicas it had; on the new one how
// many it shall get and whose pods it replaces (by name and UID, so that nobody
// adopts a stranger). What we add has the prefix sampan.dev/.
//
// Deployments do this on the server; this package is for those who have
// ReplicationControllers and scripts.
package rollout
