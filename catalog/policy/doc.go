// Package policy describes the PodDisruptionBudget, kind of the group policy, version
// v1: how many of the pods that it selects may be evicted at a time.
//
// The status of a budget, which a controller updates, has the number of
// evictions that are allowed now. Evictions are a subresource of pods.
package policy
