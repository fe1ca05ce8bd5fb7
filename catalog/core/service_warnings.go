package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// serviceWarnings warns of fields that are ignored, out of date, or written in a way that some
// readers misunderstand. The messages are those of Kubernetes.
func serviceWarnings(s *corev1.Service) []string {
	var all []string
	warn := func(when bool, format string, args ...any) {
		if when {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	spec := field.NewPath("spec")
	_, hints := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	warn(hints, "annotation %s is deprecated, please use %s instead", corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode)

	headless := s.Spec.Type == corev1.ServiceTypeClusterIP && isHeadless(s)
	external := s.Spec.Type == corev1.ServiceTypeExternalName
	if !headless && !external {
		for i, ip := range s.Spec.ClusterIPs {
			all = append(all, validation.GetWarningsForIP(spec.Child("clusterIPs").Index(i), ip)...)
		}
	}
	addressed := len(s.Spec.ExternalIPs) > 0
	warn(headless && s.Spec.LoadBalancerIP != "", "spec.loadBalancerIP is ignored for headless services")
	warn(headless && addressed, "spec.externalIPs is ignored for headless services")
	warn(headless && s.Spec.SessionAffinity != corev1.ServiceAffinityNone, "spec.SessionAffinity is ignored for headless services")
	for i, ip := range s.Spec.ExternalIPs {
		all = append(all, validation.GetWarningsForIP(spec.Child("externalIPs").Index(i), ip)...)
	}
	warn(addressed && !headless && !external, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	if s.Spec.LoadBalancerIP != "" {
		all = append(all, validation.GetWarningsForIP(spec.Child("loadBalancerIP"), s.Spec.LoadBalancerIP)...)
	}
	for i, r := range s.Spec.LoadBalancerSourceRanges {
		all = append(all, validation.GetWarningsForCIDR(spec.Child("loadBalancerSourceRanges").Index(i), r)...)
	}
	warn(external && addressed, "spec.externalIPs is ignored when spec.type is %q", corev1.ServiceTypeExternalName)
	warn(!external && s.Spec.ExternalName != "", "spec.externalName is ignored when spec.type is not %q", corev1.ServiceTypeExternalName)

	old := corev1.ServiceTrafficDistributionPreferClose
	warn(s.Spec.TrafficDistribution != nil && *s.Spec.TrafficDistribution == old,
		"spec.trafficDistribution: %q is deprecated; use %q", old, corev1.ServiceTrafficDistributionPreferSameZone)
	return all
}
