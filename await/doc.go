// Package await says whether API objects are done, and waits until they are.
//
// A server answers when an object is accepted; people want to know when it is
// done. The idea is the verdict: for any object, the pods and endpoints that
// belong to it, and the warnings about them, [Judge] says [Done], [Failed] and
// how surely, or [Waiting], always with the cause in plain words. Judge is a pure
// function; there is one file per kind.
//
// [Until] waits for a set of objects. It keeps one list and watch per (resource,
// namespace, selector) and judges again whatever an event touches, so it ends the
// moment the set is decided and asks nothing on a timer.
//
//	A1  What counts is what the server says after the wait began or, with
//	    Target.UID and Target.Generation, after the caller's own write: neither a
//	    stale status nor a namesake made later passes for the object meant.
//	A2  A certain failure ends the wait at once, a likely one after a grace, and
//	    trouble that may pass (no room on any node) only at the deadline.
//	A3  Membership of a selector is followed: objects that come count, objects
//	    that go no longer do.
//	A4  A server that goes away in mid-wait is waited for; a wait that could not
//	    see the server at its deadline says so and is never reported as done.
//	A5  There is one deadline for the whole set.
//
// Terms: a degree is what counts as done (ready, running, deleted, …); a target
// is what the caller names; a member is an object that a target stands for.
//
// The package changes nothing on the server and prints nothing.
package await
