// Package follow tells what the objects of one source are, and then each change.
//
// A [Follower] lists, watches from there, lists again when the watch is too old, and goes on
// when a server that went away is back. What it tells are reports: the pages of a list,
// changes in their order, trouble. Between a list and the next one, no change is left out.
//
// For one object by name there is a shorter way where the server has blocking reads: a
// [Question] is asked first. The answer comes when an outcome is true, and stands in the
// place of the first list. A server that does not know the parameters answers at once, and
// the watch goes on from that very answer; whatever else comes of the question, the list
// is made after it. So an answer can be early, but no result hangs on it.
//
// The package is a room of package await. It judges nothing.
package follow
