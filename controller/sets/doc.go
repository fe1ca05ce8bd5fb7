// Package sets holds the controllers of pods with an identity: StatefulSet, whose pods have ordinals, and DaemonSet, whose
// pods have nodes.
//
// Both share one reconcile function around a plan for their kind. A plan is a pure function of the set, its pods, its
// history and the time; it returns the pods to create and to delete and the status, and is tested with stories. Package
// dependents has the common part of all controllers of dependents (adoption, creation in batches, the status).
//
//	sets-F1  A template is recorded in a ControllerRevision before a pod is created from it, and a revision that a pod has
//	         is not deleted.
//	sets-F2  There are never two pods with one ordinal, and two on one node only during an update with maxSurge.
//	sets-F3  A step of a controller leaves no more than maxUnavailable pods unavailable.
//	sets-F4  With podManagementPolicy OrderedReady, scaling down and rolling updates stop at a pod that is not available,
//	         as upstream's do. With Parallel, and in a DaemonSet, an outdated pod that is not available is replaced at
//	         once, so that a broken template does not block the one that repairs it.
//	sets-F5  A pod that has ended is replaced after a pause that doubles with each end at the same place, so that a node
//	         that rejects pods does not get one after the other.
//
// With the annotation sampan.dev/progress-deadline-seconds: "N" the condition Progressing of a set is False with reason
// ProgressDeadlineExceeded after N seconds without progress, and True with reason RollingOut or RolledOut otherwise.
//
// The dependents of a deleted set are deleted by package garbage. Package scheduler chooses the node of a pod: a pod of a
// DaemonSet has an affinity for its node.
package sets
