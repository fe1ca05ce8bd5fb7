// Package scheduler assigns pods to nodes.
//
// [Decider] is a pure function of a set of plug-ins, a pod and a cluster: filters exclude nodes, scores rank the
// remaining ones, and if none remains a PostFilter may find pods to preempt. [Scheduler] is the loop around it.
//
// The loop is one goroutine. It owns the queue and the cluster that decisions are about. Watches, bindings and extenders
// post events to its inbox. The loop handles these events, takes a batch of pods from the queue, decides about each, and
// starts goroutines that write the results to the API server. It counts a pod on its node at once and goes on.
//
//	scheduler-S1  A pod counts on its node from the decision on, even before the watch reports the binding. If binding
//	              fails it does not count any more.
//	scheduler-S2  A pod that does not fit any node waits for an event that can help, as the hints of the plug-ins that
//	              refused it say, or for a change of the pod. Only attempts that failed with an error are repeated after
//	              some time, with back-off. A pod whose back-off has not ended is tried early if the queue is
//	              otherwise empty.
//	scheduler-S3  The scheduler ignores a pod that has a node, is being deleted, has ended, names another scheduler or is
//	              refused by a PreEnqueue.
//	scheduler-S4  A refusal is reported once, as condition PodScheduled=False and as event FailedScheduling, with
//	              upstream's message, and again only when the message changes.
//	scheduler-S5  Caching does not change decisions: the cached answers of filters and scores for a node that has not
//	              changed, and the cached refusals of equal pods, are the answers that the plug-ins would give again.
//	scheduler-S6  Equal pods that do not fit any node wait as a group. After an event that can help, one of them is tried;
//	              if it fits, the others follow. Ten thousand such pods cost no more than one.
//	scheduler-S7  If a plug-in panics, only the pod that it was called about fails, and is tried again after a back-off.
//	              After a panic in Less two pods are equal, after one in a hint the event may help, and after one in Sign
//	              the pod is not equal to any other. A plug-in that does not return stops the loop or, from Permit on,
//	              only its pod.
//	scheduler-S8  An extender is called on a separate goroutine, and then the pod is decided about again with its answer.
//
// Two schedulers with the same name count each other's decisions only after the watch reports them; let them elect a
// leader (package election).
package scheduler
