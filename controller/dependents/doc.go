// Package dependents is what controllers of dependents do alike, whatever the kinds: know the
// owners, adopt and release dependents, make and remove pods, write a status.
//
// A [Controller] is the owners' side: their cache, loop and events. [Claims] are the
// dependents' side, and [Pods] those of pods.
//
//	O1  A controller touches only objects whose controller reference names it by UID.
//	    It adopts orphans that its selector matches and releases objects that it no
//	    longer matches, and does neither while it is being deleted.
//	O2  Whatever writes returns after the cache has seen it (see package controller).
//	O3  Pods are created in batches that begin with one and double, so that a quota or
//	    a broken template costs one refusal and not a thousand.
//
// It decides nothing: how many pods there are to be, and which, is for the plans of the
// packages above.
package dependents
