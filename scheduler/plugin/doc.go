// Package plugin is the contract between the scheduler and what decides for it.
//
// A [Filter] rules nodes out, a [Scorer] ranks those that are left. Both are plain
// values in a [Set]; there is no registration. They are pure: what they answer
// depends on the pod and the nodes that they are given, and on nothing else, so
// that a decision can be told again from its inputs.
//
// [Pod] and [Node] are the API objects with what plug-ins would otherwise count
// again for each other: requests, ports, and what the pods of a node have
// already taken. A Node includes pods that were bound a moment ago and have not
// been seen in the watch yet.
//
//	P1  A plug-in changes nothing that it is given and keeps none of it.
//	P2  A plug-in is called from one goroutine at a time.
//	P3  The text of a refusal is what users read behind "0/3 nodes are
//	    available:". Equal texts are counted together, so they name no node.
package plugin
