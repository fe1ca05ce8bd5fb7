package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateServiceUpdate keeps the addresses of a service. It may get a second
// address and lose it again, and all of them when it becomes another name for something.
func validateServiceUpdate(s, old *corev1.Service, spec *field.Path) field.ErrorList {
	errs := validateAddressUpdate(s, old, spec)
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && old.Spec.Type == corev1.ServiceTypeLoadBalancer && !same(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(spec.Child("loadBalancerClass"), s.Spec.LoadBalancerClass, "may not change once set"))
	}
	if hasHealthPort(s) && hasHealthPort(old) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(spec.Child("healthCheckNodePort"), "field is immutable"))
	}
	return errs
}

func validateAddressUpdate(s, old *corev1.Service, spec *field.Path) field.ErrorList {
	if !hasClusterIP(s) || !hasClusterIP(old) || isHeadless(s) && isHeadless(old) {
		return nil
	}
	const fixed = "may not change once set"
	var errs field.ErrorList
	single := s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack
	at, ips, had := spec.Child("clusterIPs"), s.Spec.ClusterIPs, old.Spec.ClusterIPs
	if len(had) > 0 && len(ips) == 0 {
		errs = append(errs, field.Invalid(at.Index(0), ips, "primary clusterIP can not be unset"))
	}
	for i := range min(len(ips), len(had)) {
		if ips[i] != had[i] && (i == 0 || len(ips) == len(had)) {
			errs = append(errs, field.Invalid(at.Index(i), ips, fixed))
		}
	}
	if len(had) > 1 && len(ips) == 1 && !single {
		errs = append(errs, field.Invalid(spec.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy, "must be set to 'SingleStack' when releasing the secondary clusterIP"))
	}
	if isHeadless(s) != isHeadless(old) {
		return errs
	}
	at = spec.Child("ipFamilies")
	families, were := s.Spec.IPFamilies, old.Spec.IPFamilies
	if len(were) > 0 && len(families) == 0 {
		errs = append(errs, field.Invalid(at.Index(0), families, "primary ipFamily can not be unset"))
	}
	for i := range min(len(families), len(were)) {
		if families[i] != were[i] && (i == 0 || len(families) == len(were)) {
			errs = append(errs, field.Invalid(at.Index(i), families, fixed))
		}
	}
	if len(were) > 1 && len(families) == 1 && !single {
		errs = append(errs, field.Invalid(spec.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy, "must be set to 'SingleStack' when releasing the secondary ipFamily"))
	}
	return errs
}

func validateServiceStatus(s, old *corev1.Service) field.ErrorList {
	at := field.NewPath("status", "loadBalancer", "ingress")
	if len(s.Status.LoadBalancer.Ingress) > 0 && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return field.ErrorList{field.Forbidden(at, "may only be used when `spec.type` is 'LoadBalancer'")}
	}
	var errs field.ErrorList
	var before []string
	if old != nil {
		for _, in := range old.Status.LoadBalancer.Ingress {
			before = append(before, in.IP)
		}
	}
	for i, in := range s.Status.LoadBalancer.Ingress {
		at := at.Index(i)
		if in.IP != "" {
			errs = append(errs, validation.IsValidIPForLegacyField(at.Child("ip"), in.IP, true, before)...)
		}
		if in.Hostname != "" {
			errs = append(errs, faults(validation.IsDNS1123Subdomain(in.Hostname), at.Child("hostname"), in.Hostname)...)
			if strings.Trim(in.Hostname, "0123456789.") == "" {
				errs = append(errs, field.Invalid(at.Child("hostname"), in.Hostname, "must be a DNS name, not an IP address"))
			}
		}
		switch {
		case in.IP != "" && in.IPMode == nil:
			errs = append(errs, field.Required(at.Child("ipMode"), "must be specified when `ip` is set"))
		case in.IP == "" && in.IPMode != nil:
			errs = append(errs, field.Forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set"))
		case in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP && *in.IPMode != corev1.LoadBalancerIPModeProxy:
			errs = append(errs, field.NotSupported(at.Child("ipMode"), *in.IPMode,
				[]corev1.LoadBalancerIPMode{corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP}))
		}
	}
	return errs
}
