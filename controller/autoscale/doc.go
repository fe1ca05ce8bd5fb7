// Package autoscale is the controller that scales the targets of HorizontalPodAutoscalers, as that of Kubernetes v1.37 does,
// with its conditions, events and messages.
//
// Every 15 seconds, and at once after a change of its specification, an autoscaler is reconciled: the controller reads the
// scale of the target, then the metrics, decides, writes the scale if it is to change, and the status. A target is
// any resource with the subresource scale. All decisions are pure functions of these readings and the time: [calculate]
// computes replicas from one metric, [history] limits how fast they change, and [decision] has the rules around them.
//
//	autoscale-A1  Without autoscalers nothing is read and no timer runs.
//	autoscale-A2  A reconcile that fails is repeated after 15 seconds, as all others are, and not earlier.
//	autoscale-A3  The recommendations and changes of the last hour are in memory only. After a restart the number of replicas
//	              at that time counts as a recommendation, so that the target is not scaled down before its stabilization
//	              window is over.
//	autoscale-A4  Two autoscalers that select the same pod do not scale.
//
// Metrics of resources come from metrics.k8s.io. Metrics of pods and objects and external metrics come from
// custom.metrics.k8s.io and external.metrics.k8s.io, if the cluster has these APIs.
package autoscale
