// Package disruption is the controller that keeps the status of PodDisruptionBudgets up to date: how many pods are
// expected, how many are healthy, and how many may be evicted now.
//
// [plan] is a pure function of a budget, the pods that it selects, the sizes of their controllers and the time; it is tested
// with stories. The API server subtracts each eviction from disruptionsAllowed and writes the pod to disruptedPods; the next
// reconcile finds the pod being deleted, or deleted, and counts again.
//
//	disruption-D1  A pod in disruptedPods does not count as healthy, so that no eviction is granted twice. If it has not
//	               been deleted after two minutes it counts again.
//	disruption-D2  maxUnavailable and percentages require the number of pods that the controllers want. If a controller
//	               has no scale (DaemonSet, Job) or was deleted, no eviction is allowed, and the condition
//	               DisruptionAllowed has the reason, as upstream. Pods without a controller do not count in that number,
//	               and an event says so. A minAvailable that is a number does not require any of this.
//
// Evictions are a subresource of pods, in package apiserver.
package disruption
