// Package scheduling describes the PriorityClass, kind of the group scheduling.k8s.io,
// version v1: the priority of the pods that name it.
//
// The number of a class never changes, because pods keep the number of their creation.
// Two classes are the system's own: [System].
package scheduling
