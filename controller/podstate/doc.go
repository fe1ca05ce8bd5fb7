// Package podstate answers what controllers ask about one pod: does it count, is it
// ready, since when. Each answer is a function of the pod and, where time matters, of
// the time, which is passed in.
//
// It knows no owner of a pod and no rule of any kind that has pods.
package podstate
