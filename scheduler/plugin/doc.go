// Package plugin is the contract between the scheduler and what decides for it.
//
// A plug-in is a value in a [Set]; there is no registration. It implements the
// small interfaces of the points at which it has something to say: [QueueSort],
// [PreEnqueue], [PreFilter], [Filter], [PostFilter], [PreScore], [Score], [Reserve],
// [Permit], [PreBind], [Bind] and [PostBind]; and [Hinter], to say what can help the pods that
// it refused. The points are those of Kubernetes' scheduling framework, and a Set
// can enable a plug-in at some of them only. A method that has the name of one of the contract's but not
// its signature would silently not be called, so [Set.Validate] refuses it.
//
// [Pod] and [Node] are the API objects with what plug-ins would otherwise count
// again for each other. [Snapshot] is the cluster: nodes, placed pods (those that
// were decided about a moment ago too), and counts per topology domain that are
// kept current pod by pod, so that a question about 100,000 pods is answered by
// looking one number up ([Snapshot.Count], [Snapshot.Carried]).
//
// There is no cycle state under string keys. What a plug-in works out once per pod
// it returns as a value of its own type: a [Check] from PreFilter, which is then
// asked about each node, and a [Scorer] from PreScore. The Check comes back to its
// plug-in as [Placement].Check in all later points.
//
//	P1  A plug-in changes nothing that it is given, and keeps neither the Snapshot nor a
//	    Node beyond the call; a Check or Scorer may hold both until it is asked for the
//	    last time, which is before Reserve.
//	P2  Decisions are pure. What PreEnqueue, PreFilter, Filter, PostFilter, PreScore, Score,
//	    Less and hints answer depends on their arguments alone: not on time, chance,
//	    earlier calls or the order of maps. They are called by one goroutine at a time. Reserve
//	    and Unreserve are called by the same one; Permit, PreBind, Bind and PostBind
//	    by many at once.
//	P3  Of the pod, all of this depends on what its [Signature] covers and on nothing else: a
//	    refusal holds for all equal pods until something changes. A plug-in that looks at more (at an
//	    annotation, say) implements [Signer]. [Filter] and [Score], beyond that, look at
//	    no other node and no other object, so that their answers are kept for as
//	    long as the node does not change. What looks further comes from PreFilter and PreScore.
//	P4  A Check answers for the Snapshot as it is when it is asked. Pre-emption takes
//	    pods out of the Snapshot and puts them back between two questions. A Check that
//	    has counted something itself implements [Follower] to hear of it; one
//	    that looks at Counts need not.
//	P5  The text of a refusal is what users read behind "0/3 nodes are available:". Equal texts
//	    are counted together, so they name no node and no amount. Amounts are told
//	    by [Explainer].
//	P6  After normalisation scores are from 0 to [MaxScore].
//	P7  Reserve of all plug-ins happens before the next decision. If anything fails
//	    afterwards, Unreserve is called for each of them, in reverse order, and also for the one that
//	    failed; it must not fail and must not mind that Reserve did nothing.
//	P8  A plug-in may panic: only the attempt of the pod that it was called about fails. It has to return. Permit,
//	    PreBind, Bind and PostBind may block until their ctx is cancelled; at the other points a plug-in that does not
//	    return stops the scheduler.
//
// Nothing here allocates for a pod that a plug-in has nothing to do with: PreFilter and
// PreScore answer [Skip]. A Check whose type is a struct of one pointer costs no
// allocation either.
//
// Package plugintest checks these laws on a plug-in, and plays stories with it.
package plugin
