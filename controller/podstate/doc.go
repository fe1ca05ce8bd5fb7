// Package podstate answers questions about one pod for controllers: whether it counts, whether it is ready, and since
// when. Each answer is a function of the pod and, where time matters, of the time, which is an argument.
package podstate
