// Package workload holds the controllers that make pods: ReplicationController and
// Job.
//
// Each is a pure plan and a short reconcile around it. A plan is given the object,
// its pods and the time, and says which pods to make and which to take away
// and what the status is; it is tested with stories. The reconcile fetches, carries
// the plan out, and waits until the caches have seen it (see package controller).
//
//	W1  A controller touches only pods whose controller reference names it by UID. It
//	    adopts orphans that its selector matches and releases pods that it no
//	    longer matches, and does neither while it is being deleted.
//	W2  The status is written only when it differs, and after the pods were dealt
//	    with, so that it says what is.
//	W3  Pods are created in batches that begin with one and double, so that a
//	    quota or a broken template costs one refusal and not a thousand.
//	W4  A pod of a Job is counted exactly once, whatever crashes when: it carries a
//	    finalizer until its UID stands in the Job's status, and leaves the list of the
//	    UIDs there when the finalizer is gone.
//
// What is not here: garbage collection of the pods of a deleted owner (package
// housekeeping), Deployments and the other kinds of apps/v1, and of Job
// podFailurePolicy, successPolicy and backoffLimitPerIndex.
package workload
