// Package podcgroup makes the cgroups of a node's pods, arranged as kubelet's (driver cgroupfs), in cgroup v1 and v2:
//
//	ROOT/kubepods                      all pods
//	ROOT/kubepods/podUID               a pod of the class Guaranteed
//	ROOT/kubepods/burstable/podUID
//	ROOT/kubepods/besteffort/podUID
//
// The container runtime makes the cgroups of containers below that of their pod. The share of CPU time of burstable is the
// sum of what its pods request, that of besteffort is the least possible, so that pods get what they request first.
//
// A controller that the machine does not have limits nothing; the container runtime reports it.
package podcgroup
