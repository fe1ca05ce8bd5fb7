// Package node is the agent of one node: it makes the pods that are bound to the
// node run, tells the API server how they are, and stops them.
//
// Each pod has one worker, a goroutine that owns everything known about that
// pod. Whatever happens (the pod changed, a container ended, a probe answered, a
// pause is over) only wakes the worker; it then looks at the whole state, asks
// package lifecycle what to do, and starts that beside itself, so that nothing it
// waits for keeps it from hearing the next news. What was done comes back as
// news.
//
// The agent knows the cluster as a client.Interface and containers as a [Runtime],
// and nothing else. Containers outlive it: what it must know after a restart lies
// in the runtime as labels, annotations and attempt numbers.
//
//	N1  What runs on the node is what the API server lists for it. Nothing is
//	    stopped for not being listed before the first list has succeeded.
//	N2  A pod object is removed from the API server only when no process of it is
//	    left and its address, volumes and mounts are given back.
//	N3  Without the API server pods go on, and are restarted by their policies.
//	N4  The status of a pod is one patch per change, the newest wins, and what has
//	    not changed is not written.
//	N5  An agent that is told to stop leaves its pods running.
//	N6  A pod that gets requests is sent its first signal when every proxy has said
//	    that it sends none any more, or at a limit (docs/decisions/0008).
//	N7  A pod that does not fit the node is rejected when the agent first sees it:
//	    it fails, with the reason, and nothing of it is made. A pod that was
//	    admitted once is never rejected.
//
// Terms: a worker is not a pod's process but the agent's goroutine for it; to
// adopt a pod is to find its containers at the start; draining is what
// happens between a pod's deletion and the first signal.
//
// It pulls and keeps no images and makes no namespaces: the runtime does. It
// evicts nothing, and has no liveness probes, hooks, sidecars or static pods yet. Of
// volumes that claims stand for it knows those that are directories of the node. (On a runtime without files every volume that names no
// object of the cluster is as good as there.)
package node
