// Package sets holds the controllers of pods that each have a place of their own:
// StatefulSet, whose places are numbers, and DaemonSet, whose places are nodes.
//
// Both are one reconcile (sets) around a plan that is the kind's own. A plan is a pure
// function of the set, its pods, its history and the time; it says what to make and what
// to take away and what the status is, and is tested with stories. What is common to
// everything that has dependents (claims, creation in batches, the status) is in
// package dependents.
//
//	F1  A template is recorded in a ControllerRevision before a pod is made of it, and
//	    no revision is forgotten that a pod has.
//	F2  There are never two pods of one number, and two on one node only while one
//	    overtakes the other (maxSurge).
//	F3  No step of ours takes more pods that serve than maxUnavailable lets be missing.
//	F4  With podManagementPolicy OrderedReady scaling down and rolling updates halt at a
//	    pod that is not available, as upstream's do. With Parallel, and in a DaemonSet, a
//	    pod of an outdated template that is not available is replaced at once, so that a
//	    template that never works does not block the one that mends it.
//	F5  A pod that has ended is made anew, after a pause that doubles with each end at the
//	    same place: a node that rejects a pod at once is not sent the next one at once.
//
// A set may have annotation sampan.dev/progress-deadline-seconds: "N"; then its condition
// Progressing is False with reason ProgressDeadlineExceeded after so long without
// progress, and True with RollingOut or RolledOut otherwise.
//
// What is not here: garbage collection of what a deleted set leaves (package
// garbage), and the choice of a node (package scheduler): a pod of a DaemonSet says
// by its affinity for which node it is meant.
package sets
