// Package blocking answers blocking reads: requests that wait until an expression over an object,
// or over each object of a collection, becomes true.
//
// A [Question] is read from a URL by [Parse]; [Waiters] answers it. Nothing is polled. The waiting
// requests of one user about one kind in one namespace share one watch of the store. It is read on the goroutine
// of one of them, the leader, which judges each change for all; when it leaves, another takes over
// at the same revision. The package starts no goroutine, and a request that waits costs only
// memory.
//
//	U1  An answer is of a state that was current at some time after the question was
//	    asked. Changes made before that, which the leader may not have read yet, do
//	    not count.
//	U2  Every state after the first that was read is judged, in order: a condition that is
//	    true only for a moment is seen.
//	U3  An expression is evaluated for an object when the question is asked and when the
//	    object has changed, and once however many requests of a user ask the same.
//	U4  A question is judged once more when its timeout has passed.
//	U5  Expressions are evaluated in a seat of the user alone ([Request.Enter]), and no longer
//	    than the request waits for: between two evaluations the request can end, and LookTime after
//	    its time limit it does.
//
// The package does not depend on HTTP, on kinds, or on users beyond their names. A function in
// [Options] turns a stored value into the map that expressions see.
package blocking
