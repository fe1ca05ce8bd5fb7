// +k8s:validation-gen=TypesWithSuffix=WorkloadPodGroupSchedulingPolicy
// +k8s:validation-gen=TypesWithSuffix=WorkloadPodGroupSchedulingConstraints
// +k8s:validation-gen=TypesWithSuffix=WorkloadPodGroupDisruptionMode
// +k8s:validation-gen=TypesWithSuffix=WorkloadPodGroupResourceClaim
// +k8s:validation-gen-input=k8s.io/api/scheduling/v1alpha3
// +k8s:validation-gen-scheme-registry=nil

// Package schedulingv1alpha3 has the rules that those types of scheduling.k8s.io, version v1alpha3,
// declare that are parts of a Job; generated.
package schedulingv1alpha3
