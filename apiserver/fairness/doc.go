// Package fairness divides what users hold of the API server for long among them, so that one user cannot keep the
// others out. Package priority does the same for the requests that are executed.
//
// Every user belongs to a [Level] and has a [Flow] of that level; where requests have no user, the address they come
// from has one. Each level has separate limits, so levels do not compete; a flow may have a third of its level. There
// are limits for
//
//	bytes         of request bodies, from before they are read until the request has ended
//	long-running  watches, streams, and answers whose clients are slow, each kind apart
//	connections   by the user of the requests on them
//
// The level exempt, of administrators (the group system:masters), has no limits.
package fairness
