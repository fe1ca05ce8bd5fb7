// Package lifecycle decides the next actions for one pod on its node, and computes the pod's status.
//
// It is the pure core of the node agent: [Decide] returns the actions to start now, [Runtime.Status] returns the
// status to write to the API server. Both are functions of a [View]: the pod as the API server has it, the state of
// its containers in the container runtime, the memory of its worker, and the time. The package does no I/O, does not
// wait and keeps no state, so every behaviour is a story in testdata.
//
// Decide is level-triggered: it reads the current state, never past events. Two calls with the same view return the same
// actions, and a worker that lost an event only loses time. The caller leaves out actions that are already being carried
// out; it recognises them by [Action.Key].
//
//	L1  A pod that was once Succeeded or Failed never runs a container again.
//	L2  A container is started only in a ready sandbox, after all init containers have succeeded in that sandbox, and
//	    after the containers before it.
//	L3  Attempts of a container rise by one from the number in the runtime or, if the runtime has lost it, in the last
//	    status.
//	L4  The sandbox outlives every running container.
//	L5  An exit that was not observed is reported as ContainerStatusUnknown; an exit code is never invented.
//
// Images, volumes and probes are outside this package: a worker passes their results in as a [Failure] or as readiness.
package lifecycle
