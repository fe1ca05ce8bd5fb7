// Package housekeeping holds the controllers that keep a cluster consistent: what
// nobody asked for by name and everybody expects.
//
//   - endpoints: the Endpoints and EndpointSlices of every Service with a selector, and
//     the slices that mirror Endpoints which somebody else writes for one without; and
//     events about selectors that match nothing
//   - namespaces: everything in a namespace that was deleted, then the namespace
//   - accounts: the default ServiceAccount and the root certificate in every namespace
//   - owners: garbage collection by owner references, in the background, in the
//     foreground, and orphaning
//   - nodes: a node that is not heard of is not ready; its pods are not either, and are
//     evicted in time; pods of nodes that are gone are removed
//
// Like those of package workload, each is a pure plan and a short reconcile.
//
//	H1  Nothing is deleted on the word of a cache: a deletion names the UID that was
//	    looked at, and that an owner does not exist is asked of the server.
//	H2  What time alone may change has a timer; nothing is looked at in intervals.
//	H3  A change of a pod costs what the services that select it cost: nobody else is
//	    looked at, and one slice of each is written, unless hints by topology shift.
package housekeeping
