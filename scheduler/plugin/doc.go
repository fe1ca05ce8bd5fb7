// Package plugin is the contract between the scheduler and its plug-ins.
//
// A plug-in is a value in a [Set]; there is no registration. It implements the interfaces of the points at which it is to
// be called: [QueueSort], [PreEnqueue], [PreFilter], [Filter], [PostFilter], [PreScore], [Score], [Reserve], [Permit],
// [PreBind], [Bind] and [PostBind]; and [Hinter], which says which events can help the pods that it refused. The points are
// those of Kubernetes' scheduling framework, and a Set can enable a plug-in at only some of them. [Set.Validate] refuses a
// method that has the name of a method of the contract but another signature, because it would never be called.
//
// [Pod] and [Node] are the API objects together with values that several plug-ins need. [Snapshot] is the cluster: nodes,
// placed pods (including pods that were decided about a moment ago), and counts per topology domain. The counts are
// updated for each pod that is placed or removed, so that a question about 100,000 pods is answered from one number
// ([Snapshot.Count], [Snapshot.Carried]).
//
// There is no CycleState. A plug-in returns its results per pod as a value of its own type: a [Check] from
// PreFilter, which is then called for each node, and a [Scorer] from PreScore. The Check is [Placement].Check at all later
// points of the same plug-in.
//
//	plugin-P1  A plug-in does not change its arguments, and keeps neither the Snapshot nor a Node after the call. A Check
//	           or Scorer may keep both until its last call, which is before Reserve.
//	plugin-P2  Decisions are pure. The results of PreEnqueue, PreFilter, Filter, PostFilter, PreScore, Score, Less and
//	           hints depend on nothing but their arguments: not on time, random numbers, earlier calls or the order of
//	           maps. They are called by one goroutine at a time, and so are Reserve and Unreserve. Permit, PreBind, Bind
//	           and PostBind are called concurrently.
//	plugin-P3  Results depend on nothing of the pod but the fields that its [Signature] covers: a refusal holds for all
//	           equal pods until there is an event. A plug-in that uses more (an annotation, for example) implements
//	           [Signer]. [Filter] and [Score] also use no other node and no other object, so that their results are cached
//	           until the node changes. A plug-in that uses more implements PreFilter or PreScore.
//	plugin-P4  A Check answers for the present state of the Snapshot. Preemption removes pods from the Snapshot and puts
//	           them back between two calls. A Check that has counted pods itself implements [Follower]; one that uses
//	           Counts does not have to.
//	plugin-P5  The reason of a refusal is what users read after "0/3 nodes are available:". Equal reasons are counted
//	           together, so a reason contains no name of a node and no amount. [Explainer] returns amounts.
//	plugin-P6  After normalisation scores are between 0 and [MaxScore].
//	plugin-P7  Reserve of all plug-ins is called before the next decision. If a later step fails, Unreserve is called for
//	           each of them in reverse order, including the plug-in whose Reserve failed. It must not fail, even if Reserve
//	           did nothing.
//	plugin-P8  A plug-in may panic: only the attempt of the pod that it was called about fails. It has to return. Permit,
//	           PreBind, Bind and PostBind may block until their ctx is cancelled; at the other points a plug-in that does
//	           not return stops the scheduler.
//
// A plug-in that does not concern a pod causes no allocation: its PreFilter and PreScore return [Skip]. A Check whose type is
// a struct of one pointer causes none either.
//
// Package plugintest tests a plug-in for these laws, and plays stories with it.
package plugin
