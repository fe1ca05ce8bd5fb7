// Package scheduler assigns pods to nodes.
//
// [Decider] is a pure function of a set of plug-ins, a pod and a cluster: filters rule nodes out, scores rank the
// rest, and if none is left a PostFilter may find how to make room. [Scheduler] is the loop around it.
//
// The loop is one goroutine, the keeper, which owns the queue and the cluster. What happens comes into its inbox: from
// watches, from bindings, from extenders. It hands the pods whose turn it is to a worker, some dozens at a time, and what was
// decided to goroutines that tell the server; it counts a pod where it will run and goes on.
//
//	S1  A pod counts on its node from the decision on, whether or not the
//	    binding has come back in the watch. If binding fails it counts no more.
//	S2  A pod that fits nowhere waits for something that can help, as the plug-ins that refused it say in
//	    their hints, or for a change of its own. Nothing is tried again by the clock, except what failed for an
//	    error, with back-off. What is woken before its back-off is over waits for that only while there is
//	    something better to do.
//	S3  A pod is left alone that has a node, is being deleted, has ended, names
//	    another scheduler or is kept out by a PreEnqueue.
//	S4  A refusal is told once: as condition PodScheduled=False and as event
//	    FailedScheduling, in Kubernetes' words, and again only when it changes.
//	S5  What is kept to be fast makes no difference: answers of filters and scores for a node that has not
//	    changed, and refusals of equal pods, are those that would be given again.
//	S6  Equal pods that fit nowhere wait as a group. When something can help, one of them tries; the others
//	    follow if it went well. Ten thousand of them cost no more than one.
//	S7  If a plug-in panics, only the pod that it was called about fails, and is tried again after a back-off. After a
//	    panic in Less two pods are equal, after one in a hint the change may help, and after one in Sign the pod is like
//	    no other. A plug-in that does not return stops the loop, or only its pod from Permit on.
//	S8  An extender is asked on a goroutine of its own, and the pod is decided about once more with its answer.
//
// Two schedulers of one name do not count each other's decisions before the watch tells of them; let them elect
// a leader (package election).
package scheduler
