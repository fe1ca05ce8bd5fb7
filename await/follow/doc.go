// Package follow lists the objects of one resource and then watches them, and goes on after errors.
//
// A [Follower] lists, watches from there, lists again when the watch has expired, and retries when the server cannot be
// reached. It delivers reports: the pages of a list, changes in their order, errors. Between two lists no change is
// missed.
//
// For one named object there is a shorter way if the server supports blocking reads: a [Question] is sent first. Its
// answer comes when one of its outcomes is true, and replaces the first list. A server that does not know the parameters
// answers at once, and the watch continues from that answer; after any other failure the list is made. So an answer can
// be early, and callers judge it themselves.
//
// The package belongs to package await. It makes no decisions about the objects.
package follow
