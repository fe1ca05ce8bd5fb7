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
//	D2  maxUnavailable and percentages need to know how many pods their controllers
//	    want. Where one has no scale (DaemonSet, Job) or is gone no eviction is allowed,
//	    and the condition DisruptionAllowed says why, as upstream. Pods without a
//	    controller are left out of that number, which an event tells. A minAvailable
//	    that is a number needs none of this.
//
// Evictions themselves are a subresource of pods, in package apiserver.
package disruption
