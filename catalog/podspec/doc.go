// Package podspec holds the defaults and rules of pod specs. Pods have a pod spec, and so have the
// templates of workloads, so the rules have a package of their own.
//
// [Default] and [Validate] are for all pod specs. A pod has more than a template ([DefaultPod]:
// requests from limits, host ports), and little of an existing pod may change ([ValidateUpdate]).
//
// Fields that Kubernetes v1.37 keeps behind a gate that is closed by default are dropped by
// [DropClosed], as the API reference has it: they are neither refused nor kept.
//
// Every function here is pure and does not look at other objects: a config map that does not exist
// is not a fault of the pod.
package podspec
