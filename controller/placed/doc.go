// Package placed holds the controllers of pods that each have a place of their own:
// StatefulSet, whose places are numbers, and DaemonSet, whose places are nodes.
//
// Both are one reconcile (sets) around a plan that is the kind's own. A plan is a pure
// function of the set, its pods, its history and the time; it says what to make and what
// to take away and what the status is, and is tested with stories. What is common to
// everything that has dependents (claims, creation in batches, the status) is in
// package owned.
//
//	F1  A template is recorded in a ControllerRevision before a pod is made of it, and
//	    no revision is forgotten that a pod has.
//	F2  There are never two pods of one number, and two on one node only while one
//	    overtakes the other (maxSurge).
//	F3  No step of ours takes more pods that serve than maxUnavailable lets be missing.
//	F4  A pod of an outdated template that is not ready is replaced at once, wherever it
//	    is in the order, so that a template that never works does not block the one that
//	    mends it.
//
// A set may have annotation sampan.dev/progress-deadline-seconds: "N"; then its condition
// Progressing is False with reason ProgressDeadlineExceeded after so long without
// progress, and True with RollingOut or RolledOut otherwise.
//
// What is not here: garbage collection of what a deleted set leaves (package
// housekeeping), and the choice of a node (package scheduler): a pod of a DaemonSet says
// by its affinity for which node it is meant.
package placed
