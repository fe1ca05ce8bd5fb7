// Package usage makes the objects of the group metrics.k8s.io, which say what pods and nodes use of CPU and memory, from the
// metrics of kubelets.
//
// A kubelet reports how much CPU time a container has used since its start. A rate needs two of these samples:
//
//	usage-U1  A node is asked only when a client reads the metrics of it or of pods on it.
//	usage-U2  The last two samples of a node are kept for a minute after they were read. A client that reads again within
//	          that time gets the average since the earlier reading; one that reads within five seconds gets the same,
//	          unless it wants a pod that was not there then.
//	usage-U3  The first client waits for a second: its two samples are that far apart.
//	usage-U4  A container that was started after the earlier sample gets the average since its start, once that is a second
//	          ago. A pod with a container of which less is known has no metrics.
//	usage-U5  A node that does not answer, and its pods, have no metrics. That is not an error for the others. It is tried again after
//	          five seconds at the earliest.
package usage
