// Package cache keeps a local copy of a set of objects, current by list and watch.
//
// A [Cache] follows one resource, or the part of it that a namespace and
// selectors cut out. Readers get the objects by name, all, or by an index of their
// own; subscribers are told every difference. Objects are shared and must not
// be changed (C1 of package client). Parts of one process that read the same
// resources take their caches from one [Shared].
//
//	K1  What subscribers were told, one after the other, is what readers see:
//	    playing it back gives the content. Two objects of one name are told as a
//	    deletion and a creation.
//	K2  A cache never goes back: after a broken watch it goes on from the last
//	    revision that it saw, and if the server has forgotten that (410), lists
//	    again and tells the differences, deletions included.
//	K3  [Cache.Revision] says up to where the server's history is in the cache. A
//	    caller that wrote something and wants to see it waits for the
//	    revision of its write ([Cache.Await]); revisions of one server are
//	    comparable numbers.
//	K4  A [Shared] follows each resource once. To each of its readers a cache of it is
//	    as one of their own: from the beginning, with their type and their indexes.
//	    A difference is told to the subscribers of all of them, in the order in which
//	    they subscribed, before the next one is.
//	K5  A cache that is optional is ready without a server that serves its resource: what it holds
//	    then is what it knew last, which at the start is nothing.
//
// Initial events come as a stream with the watch (WatchList) where the server does
// that, and from a list otherwise. There is no resync and no polling: a cache
// that is told nothing does nothing. A server that fails is tried again after
// pauses that grow, with jitter; one that does not serve what is optional, every ten minutes or so.
package cache
