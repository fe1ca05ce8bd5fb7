// Package memory keeps a process fast while it is busy and small while it is not.
//
// Go's collector runs when the heap has doubled, which for a heap of a few megabytes
// is all the time; and after a busy time the garbage stays, because nothing is
// allocated that would make the collector run. [Run] follows the collections: each
// sets the heap's next goal, and when the process has allocated next to nothing for a
// while after one, garbage and the pages of the program's own file are given back to the
// system once.
//
// Whoever works slowly is looked at in such intervals until it is still: it may end long
// before the next collection.
//
// Nothing is polled while nothing happens: the runtime says when it has collected. It
// collects every two minutes by itself, too, so an idle process works for some
// milliseconds then.
package memory
