// Package scheduler assigns pods to nodes.
//
// [Decide] is a pure function of a pod, the nodes and a set of plug-ins: filters
// rule nodes out, scorers rank the rest. [Scheduler] is the loop around it: it
// follows pods and nodes by watch, takes the most important waiting pod, decides,
// counts the pod in where it will run, and binds it while it already decides about
// the next one.
//
//	S1  A pod counts on its node from the decision on, whether or not the
//	    binding has come back in the watch. If binding fails it counts no more.
//	S2  A pod that fits nowhere waits for something that can help: a node that
//	    came or changed, a pod that ended, a change of its own. Nothing is tried
//	    again by the clock, except what failed for an error, with back-off.
//	S3  A pod is left alone that has a node, is being deleted, has ended, names
//	    another scheduler or has scheduling gates.
//	S4  A refusal is told once: as condition PodScheduled=False and as event
//	    FailedScheduling, in Kubernetes' words, and again only when it changes.
//
// It does not preempt, and knows no volumes, pod affinity or topology constraints
// yet: those are plug-ins to be written.
package scheduler
