// Package await reports whether API objects are done (ready, running, finished, deleted, …), and waits until they are.
//
// An API server answers when it has accepted an object; users want to know when the object is done. [Judge] is a pure
// function from an object, the objects that belong to it and the events about all of these to a [Verdict]: [Done],
// [Failed] (certainly or likely) or [Waiting], always with a cause that people can read. [Look] adds the parts that hold
// the object up. Each kind has one file with its rules, and one line in the table kinds.
//
// [Until] waits for a set of objects. It keeps one list and watch per resource, namespace and selector, files the
// objects in a forest of owners and parts, and judges an object again only if an event changes it. So it returns as soon as
// the set is decided, polls nothing, and the cost of an event depends on how many owners its object has, not on the
// size of the set.
//
//	A1  Only the state after the wait began counts or, if UID, Generation and ResourceVersion of a Target are set, the
//	    state after the caller's write. A stale status does not count, nor does a later object of the same name.
//	A2  A certain failure ends the wait at once, a likely one after a grace period. A problem that may pass (no node
//	    has enough free resources) ends it only at the deadline.
//	A3  The objects of a selector are followed: an object that begins to match counts, one that no longer matches does
//	    not.
//	A4  If the server goes away during the wait, the wait continues. A wait that cannot reach the server at its deadline
//	    returns that error; it never returns done.
//	A5  There is one deadline for the whole set.
//	A6  Only the objects that decide must be readable. Objects that only explain, above all events, may be forbidden.
//	A7  Every state that a watch delivers of the objects that decide is judged, in order. The wait ends in the first
//	    state that decides it, even if another follows at once. All objects of a set must be done at the same time.
//	    States are missed only while there is no watch (the server is away, or the watch has expired).
//	A8  A wait without progress (Quiet) for a condition, a path, an expression, Created or Deleted of one named object is
//	    one blocking read, if the client uses HTTP and the server supports it. The object in the response is judged here
//	    as well, so the result never depends on the server's evaluation.
//
// Certain failures are an image name that cannot be parsed or may not be pulled, a failed Job or pod, a quota or
// admission rule that forbids pods, an exceeded progress deadline, and names that another CustomResourceDefinition uses.
// Likely failures are images that cannot be pulled at the moment, containers that keep crashing or lack a ConfigMap, a
// Service that selects no pod and, for Serving, pods that no Service selects. These may recover.
//
// Terms: a degree is what counts as done (ready, running, deleted, …); a target is the object or selector that the
// caller names; a member is an object that a target selects; a part is an object that belongs to another.
//
// Package await/compat has waits with the names of Kubernetes' e2e framework. Test suites with a client-go clientset get
// a client from [client.FromClientset], those with a rest.Config from [client.NewREST].
//
// The package writes nothing to the server and prints nothing.
package await
