// Package rollout replaces the pods of a ReplicationController by others, a few at
// a time, from the client's side.
//
// [Plan] and [PlanReplacement] are the heart: pure functions from how many pods
// there are, of which kind and how ready, to the next step. Around them stands
// [Updater], which does one API call after the other. Nothing is kept in memory that
// matters: where an update stands is written on the two controllers, so a killed one
// is resumed by running it again, from after any call. The API of core/v1 is enough.
//
//	R1  No step takes ready pods below the minimum: desired − unavailable.
//	R2  No step lets more pods exist than the maximum: desired + surge. Pods that
//	    are being deleted are no capacity and count for neither.
//	R3  Every step is worth its while: from every state, the plan ends, in the same
//	    state as from every other.
//	R4  A write is made on what was read (resource version, UID).
//	R5  The rename restarts no pod: the new controller lets go of its pods, and
//	    one call later the old one has them.
//	R6  Of two updaters on one controller, one goes on. Who is at it stands on
//	    the controller with a number that moves; the other one watches that, and
//	    takes over when it stands still. No clocks are compared.
//	R7  Progress is only what was never reached before: pods that come and go keep
//	    no update from timing out.
//	R8  Before its first write, an update has the server check by dry runs what it will
//	    ask for: the creation of the new controller, the label of a pod, the deletion of
//	    the old controller. What the server refuses then changes nothing.
//
// What stands on the controllers, as kubectl rolling-update wrote it: on the old
// one which controller is next and how many replicas it had; on the new one how
// many it shall get and whose pods it replaces (by name and UID, so that nobody
// adopts a stranger). What we add has the prefix sampan.dev/rollout-; all of it goes
// when the update is complete but for what became of it (rollout-last), and the name and UID
// of a deleted controller whose pods may still be ending (rollout-replaced).
//
// The resume after a lost answer to the very last call is the one thing that cannot be
// seen from the cluster: whoever runs the command once more asks for it once more.
//
// Deployments do this on the server; this package is for those who have
// ReplicationControllers and scripts.
package rollout
