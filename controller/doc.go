// Package controller is the loop that every controller runs in.
//
// A [Loop] holds a queue of keys and calls a reconcile function for each. The function reads the present state of the
// cluster from caches, decides, writes the differences, and returns. It does not receive the events that queued the key,
// so a missed or repeated event makes no difference.
//
//	controller-L1  A key is in the queue at most once, however often it is added, and is reconciled by one worker at a
//	               time. A key that is added while it is being reconciled is reconciled once more afterwards.
//	controller-L2  A key whose reconcile failed is tried again after a pause that doubles with each failure, with jitter.
//	               The pause does not delay a key that is added by an event.
//	controller-L3  A key can be added for later. The earliest time counts, and one timer serves all keys: a loop without
//	               keys does nothing.
//	controller-L4  Work begins when all channels in Options.Needs are closed.
//
// # Reading one's own writes
//
// A reconcile that runs again before the caches have its previous writes would write them twice: six pods instead of three.
// Therefore a reconcile returns only after the caches have caught up with its writes: with [cache.Cache.Await] after a create
// or update (the answer has the revision) and with [cache.Cache.AwaitDeletion] after a deletion. By controller-L1 the next
// reconcile of the key then sees them. There are no expectations that could expire or be lost in a restart. A cache that
// is cut off from the server delays its loops, because they would decide from old data.
package controller
