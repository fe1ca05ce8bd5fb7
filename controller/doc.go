// Package controller is the loop that every controller runs in.
//
// A [Loop] holds a queue of keys and calls a reconcile function for each. The
// function looks at the cluster as it is (through caches), decides, writes what is
// different, and returns; nobody tells it what happened, so that a missed or repeated
// event changes nothing.
//
//	L1  A key is in the queue once, however often it is added, and is worked on by
//	    one worker at a time. A key that is added while it is being worked on is
//	    worked on again afterwards.
//	L2  A key whose reconcile failed is tried again after a pause that doubles with
//	    each failure, with jitter. An addition from outside is not held up by that.
//	L3  A key can be added for later. The earliest time wins, and one timer serves
//	    all: a loop with nothing to do does nothing.
//	L4  Work begins when everything in Options.Needs is ready.
//
// # Reading one's own writes
//
// A reconcile that runs again before the caches have seen what it wrote would
// write it twice: make six pods for three. The rule that prevents it is that a
// reconcile returns only after the caches have caught up with its writes: with
// [cache.Cache.Await] for what it created or changed (the answer has the revision)
// and [cache.Cache.AwaitDeletion] for what it deleted. By L1 the next reconcile of
// the key then sees them. There are no expectations to keep, to expire, or to lose in
// a restart. A cache that is cut off from the server holds its loops up, which
// is right: they would decide on old data.
//
// [cache.Cache.Await]: https://pkg.go.dev/github.com/sampan-io/sampan/client/cache
// [cache.Cache.AwaitDeletion]: https://pkg.go.dev/github.com/sampan-io/sampan/client/cache
package controller
