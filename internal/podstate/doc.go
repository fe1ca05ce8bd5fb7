// Package podstate answers common questions about the status of one pod: is it active, finished, ready, and for how long.
//
// Each answer is a function of the pod and, if it depends on the time, of the time that the caller passes in. Rules of
// the kinds that own pods belong to their controllers.
package podstate
