// Package scheduling describes the PriorityClass, kind of the group scheduling.k8s.io,
// version v1: how important the pods are that name it.
//
// The number of a class never changes, because pods keep what it was when they were made.
// Two classes are the system's own: [System].
package scheduling
