// Package garbage is the garbage collector: it deletes objects whose owners do not exist any more, and handles the
// foreground and the orphan policy of deletions.
//
// What happens to an object is a pure function of the states of its owners; the reconcile function carries it out.
//
//	garbage-G1  The cache does not decide that an owner is absent, the server does; and a deletion has the UID of the object
//	            that was judged as a precondition, and its resource version unless its owner references are as they were.
//	garbage-G2  Nothing is done at intervals: only a change of an object, of its owners or of its dependents
//	            reconciles it.
package garbage
