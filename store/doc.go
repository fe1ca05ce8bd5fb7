// Package store keeps the objects of the cluster as one ordered history, and serves watches of it.
//
// Every write gets the next [Revision]. A reader names the last revision that it has seen and
// receives everything after it, in order, once. Optimistic concurrency, watches, informer caches
// and recovery all rest on that sentence, so the invariants are numbered, and package storetest
// cites them by number:
//
//	I1  Revisions rise strictly and are never used twice, not even after a crash
//	    that lost volatile writes.
//	I2  A write whose expectation does not hold changes nothing and uses no
//	    revision.
//	I3  A watch after revision r yields exactly the events after r that match it,
//	    in order, each once, or ends with [ErrExpired]. It never skips, repeats
//	    or reorders.
//	I4  A list and a watch after the list's revision together miss nothing. The
//	    pages of one list come from one revision.
//	I5  Values are immutable once committed.
//	I6  A durable write that was acknowledged survives kill -9 and power loss. No
//	    reader sees a durable write before it is on disk.
//	I7  What a crash left half-written at the end of the history is cut off on
//	    the next start. Damage anywhere else stops the start and is reported with
//	    its place; it is never guessed around.
//	I8  A volatile write does not wait for the disk. It is saved together with the next
//	    durable write, at a clean stop, or when there are too many of them (store/commit.go
//	    has the bounds). A crash may lose it; a watch or list from a
//	    revision that the crash took away ends with [ErrExpired].
//	I9  A record whose time to live has passed since its last write is deleted, even if the
//	    store was stopped in between. Its deadline is never reached early.
//	I10 A store whose medium is full takes deletions, and updates that make records smaller or
//	    belong to deletions, for as long as the backend has space kept back.
//	I11 A store with a quota refuses writes that would make its records take more
//	    memory (store/quota.go has the exceptions) and changes nothing; reads and
//	    deletions go on.
//	I12 A write whose guards, claims or charge (store/guard.go) do not hold changes
//	    nothing. At every revision each claim belongs to one key, and the other
//	    conditions of a write held at the revision before it.
//	I13 A [Past] has the saved writes that it keeps as they were made, and the states
//	    between them. Nothing else depends on it: a store loads and serves without
//	    its files, and writes go before them when space is short.
//
// The image of all live records is held in memory, ordered by key, and every read is answered from
// it; a [Backend] below only makes batches durable and gives the records back at the start. Writes
// are committed in groups: all that arrive while the disk is busy share the next sync.
//
// The package does not depend on kinds. Keys are paths whose first segment is the resource
// ("pods/default/web"); package catalog gives them meaning.
package store
