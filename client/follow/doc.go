// Package follow lists the objects of one resource and then watches them, and goes on after errors.
//
// A [Follower] is the only list and watch of the components and commands: local copies of objects (package cache), waits
// (package await) and printed watches read from it. It reports each page of a list, each change and each error as a
// [Step], and the caller decides what they mean. A loop over [Follower.Steps] works on the caller's goroutine:
//
//	F1  The first page of a list is marked, and so is the last. What a complete list does not have is gone. A list that
//	    fails is read again from its first page.
//	F2  Between a list and the next one no change is missed, and changes come in their order: a watch continues from the
//	    last revision seen, after a lost connection, too.
//	F3  If the server cannot continue from there, that is a step ([Expired]), and the next steps are those of a new list.
//	F4  After an error Steps pauses, longer each time, and tries again, unless the caller's [Retry] gives up. A list or
//	    an event ends the row of errors. A watch that a server ends in an orderly way, as servers do from time to time, is
//	    not reported, but there is a pause, because a server may end every watch at once.
package follow
