// Package scheduling has the commands scheduler, which runs a scheduler, and scheduler
// explain, which explains where a pod would be scheduled or why it does not fit.
//
// An explanation is a decision of the scheduler's own code about the present objects of a server:
//
//	E1  It changes nothing on the server.
//	E2  The message is the one of the scheduler's event for the same state.
//	E3  Every plugin that rejects a node is listed, not only the first one, which the events
//	    have, so that the suggested changes are sufficient. Rejections that only another
//	    change would cause are not found.
//	E4  A pod that has a node is judged as if it had none and did not run.
//
// It does not call extenders, which it only names, and does not apply admission to pods of
// a file, except for their priority.
package scheduling
