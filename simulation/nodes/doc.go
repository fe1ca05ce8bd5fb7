// Package nodes is the agent of many simulated nodes at once: thousands, in one
// process, at the cost of little more than their objects in the API server.
//
// A node of the fleet that has no pods is an entry in a table. One cache follows the
// pods of all nodes and one the nodes themselves; one goroutine, the loop, owns every
// pod. A pod is a [lifecycle.View] whose containers are imagined: what package
// lifecycle says is to be done is done at once, or at the time that the pod's
// simulation.Life says, and what it says of the pod is written to the API server. So
// a pod goes through the same states as on a node with the real agent, in the
// same words.
//
//	F1  A pod's status is written only on top of the version that it was made from;
//	    what others have written meanwhile is never undone.
//	F2  A pod object is removed when its containers have ended, with the grace
//	    that it has, and the API server knows how.
//	F3  A node that is cut off writes nothing and hears nothing; its pods go on.
//	    Restored, it takes in all that it has missed before it writes.
//	F4  At idle the fleet writes nothing but leases, and at most leasesPerSecond of
//	    them a second however many nodes there are.
//
// What is left out, against package node: nothing is looked up that a pod refers to
// (config maps, secrets, claims), probes answer as the pod's Life says, there are no
// logs and no exec, and of events only warnings.
//
// A few simulated nodes are better served by a real agent each on the runtime of
// package simulated; package cluster chooses (docs/decisions/0010).
package nodes
