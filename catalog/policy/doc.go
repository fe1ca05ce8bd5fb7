// Package policy describes the PodDisruptionBudget, kind of the group policy, version
// v1: how many of the pods that it selects may be taken away on purpose.
//
// A budget says what is wanted; its status, which a controller keeps, says how many
// evictions are allowed now. Evictions are a subresource of pods.
package policy
