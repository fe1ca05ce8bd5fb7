// Package disruption is the controller that keeps the status of
// PodDisruptionBudgets: how many pods there should be, how many serve, and how many
// may be evicted now.
//
// [plan] is a pure function of a budget, the pods that it selects, the sizes of their
// controllers and the time; it is tested with stories. The API server takes each eviction
// from disruptionsAllowed and notes the pod in disruptedPods; the next look here finds
// the pod being deleted, or gone, and counts anew.
//
//	D1  A pod in disruptedPods does not count as serving, so that an eviction is never
//	    granted twice. After two minutes without its deletion it counts again.
//	D2  Where the size of a controller is not known no eviction is allowed.
//
// Evictions themselves are a subresource of pods, in package apiserver.
package disruption
