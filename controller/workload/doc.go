// Package workload holds the controllers of pods without an identity: ReplicationController, ReplicaSet and Job; and that of
// Deployments, which creates ReplicaSets.
//
// Each is a pure plan and a reconcile function around it. A plan is a function of the object, its dependents and the
// time; it returns the dependents to create and to delete and the status, and is tested with stories. Package dependents has
// the common part of all controllers of dependents.
//
//	workload-W1  The status is written only if it has changed, and after pods were created and deleted, so that it is
//	             current.
//	workload-W2  A pod of a Job is counted exactly once, even after a crash: it has a finalizer until its UID is in the
//	             status of the Job, and the UID is removed from there when the finalizer has been.
//	             With backoffLimitPerIndex the last failed pod of an index keeps the finalizer until the next pod of the
//	             index has the number of failures in an annotation.
//	workload-W3  A step of a rollout never has more than replicas + maxSurge pods of a Deployment nor, as far as the
//	             statuses of its ReplicaSets are current, less than replicas - maxUnavailable available ones.
//
// Annotations of a Deployment enable features that Kubernetes does not have:
//
//	sampan.dev/auto-rollback: "true"  rolls back to the template that last completed a rollout, when the progress
//	    deadline is exceeded or a new pod is certain to fail
//	sampan.dev/canaries: "N"          replaces N old pods by new ones, then waits for promote or abort
//	sampan.dev/promote: "REVISION"    completes the rollout, if that is the revision of the canaries
//	sampan.dev/abort: "REVISION"      rolls back, if that is the revision of the canaries
//
// REVISION is the annotation deployment.kubernetes.io/revision. While canaries wait the condition CanariesHeld is True, and
// Progressing is Unknown with that reason. A template that completed a rollout before is not tried out again: its
// ReplicaSet has the annotation sampan.dev/completed. A rollback changes the template (the generation rises by one) and, in the same update, writes the
// annotation sampan.dev/rolled-back, which is JSON with generation, revision, template, to, reason and message: a client that
// waits for that generation or an earlier one should stop waiting. Until the next template the condition RolledBack is
// True with reason ProgressDeadlineExceeded, PodsFail or CanariesAborted. A template is rolled back automatically only
// once, and a template that was the target of a rollback never is, so that there is no loop.
//
// Package sets has the controllers of
// pods with an identity, package garbage deletes the dependents of deleted owners.
package workload
