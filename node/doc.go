// Package node is the node agent: it runs the pods that are bound to one node, reports their status to the API server,
// and stops them when they are deleted.
//
// Each pod has one worker, a goroutine that owns the agent's state of that pod. Every event (the pod changed, a
// container ended, a probe answered, a pause has passed) only wakes the worker. The worker then reads the whole state,
// asks package lifecycle for the next actions, and starts each action in a separate goroutine, so that a slow action
// does not delay the next event. The result of an action is another event.
//
// The agent uses the cluster through client.Interface and containers through [criclient.Runtime]. Containers outlive the agent:
// the state that it needs after a restart is stored in the runtime as labels, annotations and attempt numbers.
//
//	N1  The node runs the pods that the API server lists for it. No container is stopped because its pod is not
//	    listed before the first list has succeeded.
//	N2  A pod object is deleted from the API server only after all processes of the pod have ended and its address,
//	    volumes and mounts are released.
//	N3  Without the API server pods keep running, and are restarted by their restart policies.
//	N4  Each change of a pod's status is one patch, the newest status wins, and an unchanged status is not written.
//	N5  An agent that stops leaves its pods running.
//	N6  A pod that receives requests is sent its first signal when every proxy has reported that it sends no more
//	    requests to it, or when a limit has passed (docs/decisions/0008).
//	N7  A pod that does not fit the node is rejected when the agent first sees it: it fails, with the reason, and no
//	    container of it is created. A pod that was admitted once is never rejected.
//	N8  A probe or hook that hangs delays nothing but its own container, and ends with its timeout or grace period.
//
// Terms: a worker is the agent's goroutine for a pod, not a process of the pod; to adopt a pod is to find its
// containers when the agent starts; draining is the time between a pod's deletion and the first signal.
//
// Pulling images and creating namespaces is the runtime's job. With a runtime that has no files, every volume that
// refers to no object of the cluster counts as mounted, and no pod is evicted.
//
// The parts of the agent are packages below this one, each with its own state: volumes, images, capacity, references,
// registration, server, static pods, evictions, metrics, and others for plug-ins. This package assembles them, and has the
// workers. What a pod needs of its node is one table of concerns, see concerns.go.
package node
