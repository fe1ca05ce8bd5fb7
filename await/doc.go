// Package await says whether API objects are done, and waits until they are.
//
// A server answers when an object is accepted; people want to know when it is
// done. The idea is the verdict: for any object, what belongs to it, and the
// warnings about all of these, [Judge] says [Done], [Failed] and how surely, or
// [Waiting], always with the cause in plain words; [Look] adds the parts that hold
// it up. Both are pure functions; there is one file per kind.
//
// [Until] waits for a set of objects. It keeps one list and watch per (resource,
// namespace, selector), files what comes in a forest of owners and parts, and judges
// again whatever an event touches. So it ends the moment the set is decided, asks
// nothing on a timer, and an event costs as much as its object has owners, however large
// the set is.
//
//	A1  What counts is what the server says after the wait began or, with UID,
//	    Generation and ResourceVersion of a Target, after the caller's own write:
//	    neither a stale status nor a namesake made later passes for the object meant.
//	A2  A certain failure ends the wait at once, a likely one after a grace, and
//	    trouble that may pass (no room on any node) only at the deadline.
//	A3  Membership of a selector is followed: objects that come count, objects
//	    that go no longer do.
//	A4  A server that goes away in mid-wait is waited for; a wait that could not
//	    see the server at its deadline says so and is never reported as done.
//	A5  There is one deadline for the whole set.
//	A6  Only objects that decide must be readable. What merely explains, events
//	    above all, may be forbidden.
//	A7  Every state that a watch brings of what decides is judged, in order: the wait
//	    is over in the first one that decides it, however soon another follows. Of a
//	    set all must be done at the same time. Only while no watch is held (a server
//	    that is away, a watch that is too old) are states not seen.
//	A8  Where nobody wants progress (Quiet) and the client is over HTTP, a condition, a path, an
//	    expression, Created or Deleted of one named object is one blocking read where
//	    the server has these. What it answers is judged here; no result hangs on it.
//
// Certain are an image name that can't be parsed or may not be pulled, a failed Job or
// pod, a quota or rule that forbids pods, a passed progress deadline, names that another
// definition has taken. Likely are images that can't be pulled now, containers that
// keep crashing or lack a ConfigMap, and a Service that selects no pod or, of what is to
// serve, pods that no Service selects: these may come later.
//
// Terms: a degree is what counts as done (ready, running, deleted, …); a target
// is what the caller names; a member is an object that a target stands for; a part
// is an object that belongs to another.
//
// [WaitForJobPodsRunning], [WaitForJobPodsInPhase], [WaitForJobFinish], [WaitForJobComplete],
// [WaitForPodsOnNodes] and [ControllerHasDesiredReplicas] are for suites that know these
// names. A suite that has a client-go clientset gets what they need from
// [client.FromClientset], one that has a rest.Config from [client.NewREST].
//
// The package changes nothing on the server and prints nothing.
package await
