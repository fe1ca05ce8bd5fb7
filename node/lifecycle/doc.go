// Package lifecycle decides what becomes of one pod on its node.
//
// It is the pure core of the node agent: [Decide] says what has to be done next,
// [Status] says what the API server should be told. Both are functions of a
// [View]: the pod as the API server has it, what the container runtime holds for
// it, what its worker remembers, and the time. Nothing here talks to anybody,
// waits, or keeps anything, so every behaviour is a story in testdata.
//
// Decide is level-triggered: it looks at what is, never at what happened. Calling
// it twice with the same view gives the same answer, and a worker that lost an
// event loses nothing but time. Actions that are already being carried out are
// left out by the caller, who knows them by [Action.Key].
//
//	L1  A pod that was once Succeeded or Failed never runs a container again.
//	L2  A container is started only in a ready sandbox, after all init
//	    containers have succeeded in that sandbox, and after those before it.
//	L3  Attempts of a container rise by one from what the runtime or, where that
//	    has lost its memory, the last status says.
//	L4  The sandbox outlives every running container.
//	L5  An exit that nobody saw is reported as ContainerStatusUnknown, never
//	    invented.
//
// It does not know images, volumes or probes: a worker reports what came of them
// as a [Failure] or as readiness.
package lifecycle
