// Package workload holds the controllers of pods of which one is as good as another,
// ReplicationController, ReplicaSet and Job, and the one that makes ReplicaSets,
// Deployment.
//
// Each is a pure plan and a short reconcile around it. A plan is given the object,
// what belongs to it and the time, and says what to make and what to take away
// and what the status is; it is tested with stories. What is common to everything that
// has dependents is in package dependents.
//
//	W1  The status is written only when it differs, and after the pods were dealt
//	    with, so that it says what is.
//	W2  A pod of a Job is counted exactly once, whatever crashes when: it carries a
//	    finalizer until its UID stands in the Job's status, and leaves the list of the
//	    UIDs there when the finalizer is gone.
//	W3  No step of a rollout takes a Deployment above size + maxSurge, or, as far as
//	    statuses tell, below size - maxUnavailable pods that serve.
//
// A Deployment may ask for more than Kubernetes does, by annotations:
//
//	sampan.dev/auto-rollback: "true"  back to the template that last completed a rollout,
//	    when the progress deadline passes or a new pod is certain to fail
//	sampan.dev/canaries: "N"          N new pods replace N old ones, then it waits
//	sampan.dev/promote: "REVISION"    it goes on, if that is the revision tried out
//	sampan.dev/abort: "REVISION"      it goes back, likewise
//
// REVISION is that of annotation deployment.kubernetes.io/revision. While canaries wait
// the condition Progressing is Unknown with reason CanariesHeld. A rollback changes the
// template (the generation rises by one) and in the same update annotation
// sampan.dev/rolled-back, JSON with generation, revision, template, to, reason and
// message: whoever waits for a generation not above that one waits in vain. From then
// until the next template the condition RolledBack is True with reason
// ProgressDeadlineExceeded, PodsFail or CanariesAborted. A template is rolled back by
// itself only once, and one that was gone back to never, so that there is no loop.
//
// What is not here: pods that each have a place of their own (package sets), garbage
// collection of what a deleted owner leaves (package garbage), and of Job
// podFailurePolicy, successPolicy and backoffLimitPerIndex.
package workload
