// Package scheduling has the verbs about schedulers: scheduler runs one, scheduler explain says where a pod would go, or why
// nowhere, and what would have to change.
//
// An explanation is the scheduler's own decision about what a server says at the moment, made here:
//
//	E1  Nothing is changed on the server.
//	E2  The sentence is the one that the scheduler's event has for the same state.
//	E3  Beside the first refusal of a node, which users read in events, all others are asked for, each plug-in by itself,
//	    so that the changes that are named are enough. Only what is refused for the sake of other changes is not seen.
//	E4  A pod that has a node is judged as if it had none and were not there.
//
// Left out are extenders, which are named and not asked, and what admission does to pods of a file but for their priority.
package scheduling
