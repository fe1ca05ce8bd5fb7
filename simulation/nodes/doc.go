// Package nodes is the node agent of many simulated nodes at once: thousands, in one process, at the cost of little more
// than their objects in the API server.
//
// A node without pods is an entry in a table. One cache follows the pods of all nodes and one the nodes themselves; one
// goroutine, the loop, owns every pod. A pod is a [lifecycle.View] with imaginary containers: an action of package
// lifecycle is done at once, or at the time that the pod's simulation.Life sets, and the resulting status is written to
// the API server. So a pod goes through the same states as on a node with the real agent, with the same reasons and
// messages.
//
//	F1  A pod's status is written only on top of the version that it was computed from; changes by other clients are
//	    never undone.
//	F2  A pod object is deleted when its containers have ended, within its grace period, and the API server has their
//	    last status.
//	F3  A node that is cut off writes and receives nothing; its pods keep running. When it is restored, it handles all
//	    missed events before it writes.
//	F4  An idle fleet only writes leases, and at most leasesPerSecond of them per second however many nodes there are.
//
// Unlike package node it has no kubelet API (no logs, no exec; [ResourceMetrics] has the metrics), does not read the objects that a pod
// refers to (ConfigMaps, Secrets, claims), does not reject pods that do not fit their node, accepts every image name, and
// restores a node's capacity that a client has changed. Probes succeed as the pod's Life sets, and only warnings are
// recorded as events.
//
// For a few simulated nodes a real agent each, on the runtime of package simulated, does more; package cluster chooses
// (docs/decisions/0010).
package nodes
