// Package cache keeps a local copy of a set of objects, current by list and watch.
//
// A [Cache] follows one resource, or the part of it that a namespace and selectors choose. Readers
// get the objects by name, all of them, or by an index; subscribers are called for every
// difference. Objects are shared and must not be changed (C1 of package client). Parts of one
// process that read the same resources take their caches from one [Shared].
//
//	K1  The differences that subscribers receive, one after the other, are what
//	    readers see: playing them back gives the content. Two objects of one name
//	    are a deletion and a creation.
//	K2  A cache never goes back: after a broken watch it goes on from the last
//	    revision that it saw, and if the server has forgotten that (410), lists
//	    again and reports the differences, deletions included.
//	K3  [Cache.Revision] says up to where the server's history is in the cache. A
//	    caller that wrote something and wants to see it waits for the
//	    revision of its write ([Cache.Await]); revisions of one server are
//	    comparable numbers.
//	K4  A [Shared] follows each resource once. To each of its readers a cache of it is
//	    like a separate one: from the beginning, with their type and their indexes.
//	    The subscribers of all of them receive a difference, in the order in which
//	    they subscribed, before the next one. If all of them read metadata alone
//	    ([MetadataOf]), it holds no more.
//	K5  A cache that is optional is ready without a server that serves its resource: it
//	    holds its last state, which at the start is nothing.
//
// Initial events come as a stream with the watch (WatchList) where the server does that, and from a
// list otherwise. There is no resync and no polling: without events a cache does nothing. After an
// error of the server it tries again, with a growing back-off and jitter; a resource that is
// optional and not served is tried every ten minutes or so.
package cache
