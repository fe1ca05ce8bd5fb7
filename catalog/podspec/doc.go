// Package podspec holds the defaults and rules of pod specs. Pods have them, and
// so have the templates of replication controllers and jobs, wherefore they do
// not live with one of these kinds.
//
// [Default] and [Validate] are what all pod specs share. A pod has more than a
// template ([DefaultPod]: requests from limits, host ports), and of a pod that
// exists little may change ([ValidateUpdate]).
//
// Fields that Kubernetes v1.37 keeps behind a gate that is closed by default are
// dropped by [DropClosed], as the API reference has it: they are neither refused
// nor kept.
//
// Everything here is a pure function. Nothing here looks at other objects, so
// that a config map that is not there is no fault of a pod.
package podspec
