// Package rolling decides the next step of a rolling update, for Deployments (controller/workload) and for updates of
// ReplicationControllers from the client (package rollout). Its functions are pure: from the numbers of pods, old and
// new, and how many are ready, to the numbers that are wanted next.
//
//	rolling-R1  No step takes ready pods below the minimum: desired − unavailable.
//	rolling-R2  No step lets more pods exist than the maximum: desired + surge. Pods that are being deleted do not count
//	            as ready, and do not count for the maximum.
//	rolling-R3  Every step makes progress: from every state the plan ends, and always in the same state.
//
// The callers write the numbers and wait; they decide what counts as ready, and when a missing one is a failure.
// Decision 0027 lists what else differs.
package rolling
