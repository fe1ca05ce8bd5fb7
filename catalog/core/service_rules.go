package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Node ports come from this range.
const (
	minNodePort = 30000
	maxNodePort = 32767
)

const maxAffinitySeconds = 24 * 60 * 60

func validateService(s, old *corev1.Service) field.ErrorList {
	spec := field.NewPath("spec")
	was := &corev1.Service{}
	if old != nil {
		was = old
	}
	errs := validateTopology(s, field.NewPath("metadata", "annotations"))
	errs = append(errs, validateServicePorts(s, spec.Child("ports"))...)
	errs = append(errs, metav1validation.ValidateLabels(s.Spec.Selector, spec.Child("selector"))...)
	errs = append(errs, validateAffinity(s, spec)...)
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		if isHeadless(s) && s.Spec.Type != corev1.ServiceTypeClusterIP {
			errs = append(errs, field.Invalid(spec.Child("clusterIPs").Index(0), corev1.ClusterIPNone,
				fmt.Sprintf("may not be set to 'None' for %s services", s.Spec.Type)))
		}
	case corev1.ServiceTypeExternalName:
		errs = append(errs, validateExternalName(s, spec)...)
	default:
		errs = append(errs, field.NotSupported(spec.Child("type"), s.Spec.Type, []corev1.ServiceType{
			corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort,
		}))
	}
	errs = append(errs, AddressFaults(s, old)...)
	for i, ip := range s.Spec.ExternalIPs {
		at := spec.Child("externalIPs").Index(i)
		if bad := validation.IsValidIPForLegacyField(at, ip, true, was.Spec.ExternalIPs); len(bad) > 0 {
			errs = append(errs, bad...)
			continue
		}
		errs = append(errs, apiAddress(ip, at)...)
	}
	errs = append(errs, validateTraffic(s, spec)...)
	errs = append(errs, validateLoadBalancer(s, spec)...)
	errs = append(errs, validateSourceRanges(s, was, spec)...)
	if old != nil {
		errs = append(errs, validateServiceUpdate(s, old, spec)...)
	}
	return errs
}

// validateTopology checks that the annotation for topology hints says the same under its
// old name, if it stands there as well.
func validateTopology(s *corev1.Service, at *field.Path) field.ErrorList {
	before, mode := corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode
	hints, both := s.Annotations[before]
	value, set := s.Annotations[mode]
	if !both || !set || hints == value {
		return nil
	}
	return field.ErrorList{field.Invalid(at.Key(mode), value, fmt.Sprintf("must match annotations[%s] when both are specified", before))}
}

func isHeadless(s *corev1.Service) bool {
	return s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

func validateServicePorts(s *corev1.Service, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.Spec.Ports) == 0 && !isHeadless(s) && s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(at, ""))
	}
	type number struct {
		protocol corev1.Protocol
		port     int32
	}
	names, ports, nodePorts := map[string]bool{}, map[number]bool{}, map[number]bool{}
	for i, p := range s.Spec.Ports {
		at := at.Index(i)
		switch {
		case p.Name == "" && len(s.Spec.Ports) > 1:
			errs = append(errs, field.Required(at.Child("name"), ""))
		case p.Name != "":
			errs = append(errs, faults(validation.IsDNS1123Label(p.Name), at.Child("name"), p.Name)...)
			if names[p.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		errs = append(errs, faults(validation.IsValidPortNum(int(p.Port)), at.Child("port"), p.Port)...)
		errs = append(errs, validateProtocol(p.Protocol, at.Child("protocol"))...)
		errs = append(errs, validateTargetPort(p.TargetPort, at.Child("targetPort"))...)
		if p.AppProtocol != nil {
			errs = append(errs, faults(validation.IsQualifiedName(*p.AppProtocol), at.Child("appProtocol"), *p.AppProtocol)...)
		}
		if s.Spec.Type == corev1.ServiceTypeClusterIP && p.NodePort != 0 {
			errs = append(errs, field.Forbidden(at.Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
		}
		if p.NodePort != 0 {
			if hasNodePortField(s) && (p.NodePort < minNodePort || p.NodePort > maxNodePort) {
				errs = append(errs, field.Invalid(at.Child("nodePort"), p.NodePort,
					fmt.Sprintf("provided port is not in the valid range. The range of valid ports is %d-%d", minNodePort, maxNodePort)))
			}
			key := number{p.Protocol, p.NodePort}
			if nodePorts[key] {
				errs = append(errs, field.Duplicate(at.Child("nodePort"), p.NodePort))
			}
			nodePorts[key] = true
		}
		key := number{p.Protocol, p.Port}
		if ports[key] {
			errs = append(errs, field.Duplicate(at, corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}))
		}
		ports[key] = true
	}
	return errs
}

func hasNodePortField(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

func validateProtocol(p corev1.Protocol, at *field.Path) field.ErrorList {
	switch p {
	case "":
		return field.ErrorList{field.Required(at, "")}
	case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		return nil
	}
	return field.ErrorList{field.NotSupported(at, p, []corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP})}
}

func validateTargetPort(p intstr.IntOrString, at *field.Path) field.ErrorList {
	switch p.Type {
	case intstr.Int:
		return faults(validation.IsValidPortNum(p.IntValue()), at, p.IntVal)
	case intstr.String:
		return faults(validation.IsValidPortName(p.StrVal), at, p.StrVal)
	}
	return field.ErrorList{field.InternalError(at, fmt.Errorf("unknown type: %v", p.Type))}
}

func validateAffinity(s *corev1.Service, spec *field.Path) field.ErrorList {
	at := spec.Child("sessionAffinityConfig")
	switch s.Spec.SessionAffinity {
	case "":
		return field.ErrorList{field.Required(spec.Child("sessionAffinity"), "")}
	case corev1.ServiceAffinityNone:
		if s.Spec.SessionAffinityConfig != nil {
			return field.ErrorList{field.Forbidden(at, fmt.Sprintf("must not be set when session affinity is %s", corev1.ServiceAffinityNone))}
		}
		return nil
	case corev1.ServiceAffinityClientIP:
		c := s.Spec.SessionAffinityConfig
		if c == nil {
			return field.ErrorList{field.Required(at, fmt.Sprintf("when session affinity type is %s", corev1.ServiceAffinityClientIP))}
		}
		if c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			return field.ErrorList{field.Required(at.Child("clientIP", "timeoutSeconds"), "")}
		}
		if t := *c.ClientIP.TimeoutSeconds; t <= 0 || t > maxAffinitySeconds {
			return field.ErrorList{field.Invalid(at.Child("clientIP", "timeoutSeconds"), t,
				fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds))}
		}
		return nil
	}
	return field.ErrorList{field.NotSupported(spec.Child("sessionAffinity"), s.Spec.SessionAffinity,
		[]corev1.ServiceAffinity{corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone})}
}

// AddressFaults returns the faults of the addresses and families that a service
// has or asks for. Old is the service before an update, or nil.
func AddressFaults(s, old *corev1.Service) field.ErrorList {
	if !hasClusterIP(s) {
		return nil
	}
	was := &corev1.Service{}
	if old != nil {
		was = old
	}
	spec := field.NewPath("spec")
	return append(validateClusterIPs(s, was, spec), validateFamilies(s, spec)...)
}

// validateClusterIPs checks the addresses of a service. Earlier ones may be
// written in a way that is not allowed any more.
func validateClusterIPs(s, was *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	at, ips := spec.Child("clusterIPs"), s.Spec.ClusterIPs
	switch {
	case s.Spec.ClusterIP == "" && len(ips) > 0:
		errs = append(errs, field.Invalid(at, ips, "must be empty when `clusterIP` is not specified"))
	case s.Spec.ClusterIP != "" && len(ips) == 0:
		errs = append(errs, field.Required(at, ""))
	case len(ips) > 0 && ips[0] != s.Spec.ClusterIP:
		errs = append(errs, field.Invalid(at, ips, "first value must match `clusterIP`"))
	}
	if len(ips) > 2 {
		errs = append(errs, field.Invalid(at, ips, "may only hold up to 2 values"))
	}
	var bad field.ErrorList
	six := make([]bool, len(ips))
	for i, ip := range ips {
		six[i] = strings.Contains(ip, ":")
		if i == 0 && ip == corev1.ClusterIPNone {
			if len(ips) > 1 {
				bad = append(bad, field.Invalid(at, ips, "'None' must be the first and only value"))
			}
			continue
		}
		bad = append(bad, validation.IsValidIPForLegacyField(at.Index(i), ip, true, was.Spec.ClusterIPs)...)
	}
	if len(bad) > 0 || isHeadless(s) { // no more checks without an address
		return append(errs, bad...)
	}
	if len(ips) > 1 && (len(ips) > 2 || six[0] == six[1]) {
		errs = append(errs, field.Invalid(at, ips, "may specify no more than one IP for each IP family"))
	}
	for i, f := range s.Spec.IPFamilies[:min(len(ips), len(s.Spec.IPFamilies))] {
		if f == corev1.IPv4Protocol && six[i] || f == corev1.IPv6Protocol && !six[i] {
			errs = append(errs, field.Invalid(at.Index(i), ips[i], fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", f, i)))
		}
	}
	return errs
}

func validateExternalName(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(set bool, name string) {
		if set {
			errs = append(errs, field.Forbidden(spec.Child(name), "may not be set for ExternalName services"))
		}
	}
	if s.Spec.ClusterIP != "" || len(s.Spec.ClusterIPs) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("clusterIPs"), "may not be set for ExternalName services"))
	}
	forbid(len(s.Spec.IPFamilies) > 0, "ipFamilies")
	forbid(s.Spec.IPFamilyPolicy != nil, "ipFamilyPolicy")
	name, at := strings.TrimSuffix(s.Spec.ExternalName, "."), spec.Child("externalName")
	if name == "" {
		return append(errs, field.Required(at, ""))
	}
	return append(errs, faults(validation.IsDNS1123Subdomain(name), at, s.Spec.ExternalName)...)
}

// validateFamilies checks what is written. Whether it goes together, and with what the
// cluster has, is for admission to say.
func validateFamilies(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	policies := []corev1.IPFamilyPolicy{corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack}
	if p := s.Spec.IPFamilyPolicy; p != nil && !slices.Contains(policies, *p) {
		errs = append(errs, field.NotSupported(spec.Child("ipFamilyPolicy"), *p, policies))
	}
	seen := map[corev1.IPFamily]bool{}
	for i, f := range s.Spec.IPFamilies {
		at := spec.Child("ipFamilies").Index(i)
		if f != corev1.IPv4Protocol && f != corev1.IPv6Protocol {
			errs = append(errs, field.NotSupported(at, f, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}))
		}
		if seen[f] {
			errs = append(errs, field.Duplicate(at, f))
		}
		seen[f] = true
	}
	return errs
}

func validateTraffic(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	at, policy := spec.Child("externalTrafficPolicy"), s.Spec.ExternalTrafficPolicy
	local, cluster := corev1.ServiceExternalTrafficPolicyLocal, corev1.ServiceExternalTrafficPolicyCluster
	switch {
	case !FromOutside(s):
		if policy != "" {
			errs = append(errs, field.Invalid(at, policy, "may only be set for externally-accessible services"))
		}
	case policy == "":
		errs = append(errs, field.Required(at, ""))
	case policy != local && policy != cluster:
		errs = append(errs, field.NotSupported(at, policy, []corev1.ServiceExternalTrafficPolicy{cluster, local}))
	}
	if p := s.Spec.HealthCheckNodePort; p != 0 {
		at := spec.Child("healthCheckNodePort")
		if !hasHealthPort(s) {
			errs = append(errs, field.Invalid(at, p, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
		} else {
			errs = append(errs, faults(validation.IsValidPortNum(int(p)), at, p)...)
		}
	}
	if in := s.Spec.InternalTrafficPolicy; in == nil {
		if s.Spec.Type == corev1.ServiceTypeClusterIP || hasNodePortField(s) {
			errs = append(errs, field.Required(spec.Child("internalTrafficPolicy"), ""))
		}
	} else if !isInternalPolicy(*in) {
		errs = append(errs, field.NotSupported(spec.Child("internalTrafficPolicy"), *in,
			[]corev1.ServiceInternalTrafficPolicy{corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal}))
	}
	if d := s.Spec.TrafficDistribution; d != nil {
		all := []string{corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameNode, corev1.ServiceTrafficDistributionPreferSameZone}
		if !slices.Contains(all, *d) {
			errs = append(errs, field.NotSupported(spec.Child("trafficDistribution"), *d, all))
		}
	}
	return errs
}

// validateSourceRanges checks the ranges in their field or, if that is empty, in the
// annotation that was there before it. An old value stays allowed.
func validateSourceRanges(s, was *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	const misplaced = "may only be used when `type` is 'LoadBalancer'"
	trim := func(ranges []string) []string {
		trimmed := make([]string, len(ranges)) // spaces around them are allowed
		for i, r := range ranges {
			trimmed[i] = strings.TrimSpace(r)
		}
		return trimmed
	}
	if len(s.Spec.LoadBalancerSourceRanges) > 0 {
		at := spec.Child("loadBalancerSourceRanges")
		if !balanced {
			errs = append(errs, field.Forbidden(at, misplaced))
		}
		before := trim(was.Spec.LoadBalancerSourceRanges)
		for i, r := range trim(s.Spec.LoadBalancerSourceRanges) {
			errs = append(errs, validation.IsValidCIDRForLegacyField(at.Index(i), r, true, before)...)
		}
		return errs
	}
	text, set := s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if !set {
		return nil
	}
	at := field.NewPath("metadata", "annotations").Key(corev1.AnnotationLoadBalancerSourceRangesKey)
	if !balanced {
		errs = append(errs, field.Forbidden(at, misplaced))
	}
	if strings.TrimSpace(text) == "" || was.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey] == text {
		return errs
	}
	for _, r := range trim(strings.Split(text, ",")) {
		errs = append(errs, validation.IsValidCIDRForLegacyField(at, r, true, nil)...)
	}
	return errs
}

func validateLoadBalancer(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	if s.Spec.AllocateLoadBalancerNodePorts != nil && !balanced {
		errs = append(errs, field.Forbidden(spec.Child("allocateLoadBalancerNodePorts"), "may only be used when `type` is 'LoadBalancer'"))
	}
	if balanced && s.Spec.AllocateLoadBalancerNodePorts == nil {
		errs = append(errs, field.Required(spec.Child("allocateLoadBalancerNodePorts"), ""))
	}
	at, class := spec.Child("loadBalancerClass"), s.Spec.LoadBalancerClass
	switch {
	case class == nil:
	case !balanced:
		errs = append(errs, field.Forbidden(at, "may only be used when `type` is 'LoadBalancer'"))
	default:
		errs = append(errs, faults(validation.IsQualifiedName(*class), at, *class)...)
	}
	return errs
}
