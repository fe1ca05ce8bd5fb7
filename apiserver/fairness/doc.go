// Package fairness divides the capacity of the API server among its users, so that one user cannot keep the
// others out: a smaller form of upstream's API Priority and Fairness, without its API kinds.
//
// Every request belongs to a [Level], by its user, and to a [Flow] of that level: that of the user or, where
// requests have no user, that of the address they come from. Each level has separate limits, so levels do not
// compete; a flow may have a third of its level. There are limits for
//
//	seats         requests that are executed now. A request that finds none waits in a short queue; seats that
//	              come free go to the waiting flows of the level in turn
//	bytes         of request bodies, from before they are read until the request has ended
//	long-running  watches, streams, and answers whose clients are slow, each kind apart
//	connections   by the user of the requests on them
//
// The level exempt, of administrators (the group system:masters), has no limits.
package fairness
