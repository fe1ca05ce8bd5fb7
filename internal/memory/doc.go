// Package memory keeps a process fast while it is busy and small while it is not.
//
// Go's collector runs when the heap has doubled, which for a heap of a few megabytes is all the
// time; and after a busy time the garbage stays, because nothing is allocated that would make the
// collector run. [Run] follows the collections: each sets the heap's next goal, and when the
// process has allocated next to nothing for a while after one, garbage and the pages of the
// program's own file are given back to the system once.
//
// A process that allocates slowly is checked again after the same interval until it is idle: its
// work may end long before the next collection. A little work now and then, such as the renewal of a
// lease, causes no collection, but maps pages of the program again; [Activity] reports it, and they
// are given back after a tenth of the interval.
//
// Nothing is polled in an idle process: the runtime reports collections. The runtime collects every
// two minutes by itself, so an idle process works for a few milliseconds then.
package memory
