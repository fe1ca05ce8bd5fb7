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
	errs := validateServicePorts(s, spec.Child("ports"))
	errs = append(errs, metav1validation.ValidateLabels(s.Spec.Selector, spec.Child("selector"))...)
	errs = append(errs, validateAffinity(s, spec)...)
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		errs = append(errs, validateClusterIPs(s, spec)...)
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
	for i, ip := range s.Spec.ExternalIPs {
		at := spec.Child("externalIPs").Index(i)
		if bad := validation.IsValidIP(at, ip); len(bad) > 0 {
			errs = append(errs, bad...)
			continue
		}
		errs = append(errs, apiAddress(ip, at)...)
	}
	errs = append(errs, validateFamilies(s, spec)...)
	errs = append(errs, validateTraffic(s, spec)...)
	errs = append(errs, validateLoadBalancer(s, old, spec)...)
	if old != nil {
		errs = append(errs, validateServiceUpdate(s, old, spec)...)
	}
	return errs
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
		if p.NodePort != 0 && hasNodePortField(s) {
			if p.NodePort < minNodePort || p.NodePort > maxNodePort {
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
	if p.Type == intstr.String {
		return faults(validation.IsValidPortName(p.StrVal), at, p.StrVal)
	}
	return faults(validation.IsValidPortNum(p.IntValue()), at, p.IntVal)
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

func validateClusterIPs(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	at, ips := spec.Child("clusterIPs"), s.Spec.ClusterIPs
	if s.Spec.ClusterIP != "" && len(ips) > 0 && ips[0] != s.Spec.ClusterIP {
		errs = append(errs, field.Invalid(at, ips, "first value must match `clusterIP`"))
	}
	if len(ips) > 2 {
		errs = append(errs, field.Invalid(at, ips, "may only hold up to 2 values"))
	}
	v6 := map[bool]bool{}
	for i, ip := range ips {
		at := at.Index(i)
		if ip == corev1.ClusterIPNone {
			if len(ips) > 1 {
				errs = append(errs, field.Invalid(at, ip, "'None' must be the first and only value"))
			}
			continue
		}
		if bad := validation.IsValidIP(at, ip); len(bad) > 0 {
			errs = append(errs, bad...)
			continue
		}
		six := strings.Contains(ip, ":")
		if v6[six] {
			errs = append(errs, field.Invalid(spec.Child("clusterIPs"), ips, "may specify no more than one IP for each IP family"))
		}
		v6[six] = true
		if i < len(s.Spec.IPFamilies) && (s.Spec.IPFamilies[i] == corev1.IPv6Protocol) != six {
			errs = append(errs, field.Invalid(at, ip, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", s.Spec.IPFamilies[i], i)))
		}
	}
	return errs
}

func validateExternalName(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(set bool, name string) {
		if set {
			errs = append(errs, field.Forbidden(spec.Child(name), "may not be set when `type` is 'ExternalName'"))
		}
	}
	if s.Spec.ClusterIP != "" || len(s.Spec.ClusterIPs) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("clusterIPs"), "may not be set when `type` is 'ExternalName'"))
	}
	forbid(len(s.Spec.IPFamilies) > 0, "ipFamilies")
	forbid(s.Spec.IPFamilyPolicy != nil, "ipFamilyPolicy")
	name, at := strings.TrimSuffix(s.Spec.ExternalName, "."), spec.Child("externalName")
	if name == "" {
		return append(errs, field.Required(at, ""))
	}
	return append(errs, faults(validation.IsDNS1123Subdomain(name), at, s.Spec.ExternalName)...)
}

func validateFamilies(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p := s.Spec.IPFamilyPolicy; p != nil {
		all := []corev1.IPFamilyPolicy{corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack}
		if !slices.Contains(all, *p) {
			errs = append(errs, field.Invalid(spec.Child("ipFamilyPolicy"), *p, fmt.Sprintf("must be one of %v", all)))
		}
		if *p == corev1.IPFamilyPolicySingleStack {
			for _, list := range []struct {
				name string
				n    int
			}{{"ipFamilies", len(s.Spec.IPFamilies)}, {"clusterIPs", len(s.Spec.ClusterIPs)}} {
				if list.n > 1 {
					errs = append(errs, field.Invalid(spec.Child("ipFamilyPolicy"), *p,
						fmt.Sprintf("must be RequireDualStack or PreferDualStack when multiple `%s` are specified", list.name)))
				}
			}
		}
	}
	seen := map[corev1.IPFamily]bool{}
	for i, f := range s.Spec.IPFamilies {
		at := spec.Child("ipFamilies").Index(i)
		if f != corev1.IPv4Protocol && f != corev1.IPv6Protocol {
			errs = append(errs, field.NotSupported(at, f, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}))
			continue
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
	case !fromOutside(s):
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
	} else if *in != corev1.ServiceInternalTrafficPolicyCluster && *in != corev1.ServiceInternalTrafficPolicyLocal {
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

func validateLoadBalancer(s, old *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	if len(s.Spec.LoadBalancerSourceRanges) > 0 {
		at := spec.Child("loadBalancerSourceRanges")
		if !balanced {
			errs = append(errs, field.Forbidden(at, "may only be used when `type` is 'LoadBalancer'"))
		}
		for i, r := range s.Spec.LoadBalancerSourceRanges {
			errs = append(errs, validation.IsValidCIDRForLegacyField(at.Index(i), strings.TrimSpace(r), false, nil)...)
		}
	}
	if s.Spec.AllocateLoadBalancerNodePorts != nil && !balanced {
		errs = append(errs, field.Forbidden(spec.Child("allocateLoadBalancerNodePorts"), "may only be used when `type` is 'LoadBalancer'"))
	}
	if balanced && s.Spec.AllocateLoadBalancerNodePorts == nil {
		errs = append(errs, field.Required(spec.Child("allocateLoadBalancerNodePorts"), ""))
	}
	at, class := spec.Child("loadBalancerClass"), s.Spec.LoadBalancerClass
	if class != nil && !balanced {
		errs = append(errs, field.Forbidden(at, "may only be used when `type` is 'LoadBalancer'"))
	}
	if class != nil {
		errs = append(errs, faults(validation.IsQualifiedName(*class), at, *class)...)
	}
	if old != nil && balanced && old.Spec.Type == corev1.ServiceTypeLoadBalancer && !same(class, old.Spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(at, class, "may not change once set"))
	}
	return errs
}

// validateServiceUpdate keeps the first address of a service the same for as
// long as it has one.
func validateServiceUpdate(s, old *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !hasClusterIP(s) || !hasClusterIP(old) || len(old.Spec.ClusterIPs) == 0 {
		return errs
	}
	if len(s.Spec.ClusterIPs) == 0 || s.Spec.ClusterIPs[0] != old.Spec.ClusterIPs[0] {
		errs = append(errs, field.Invalid(spec.Child("clusterIPs").Index(0), s.Spec.ClusterIPs, "may not change once set"))
	}
	if len(old.Spec.IPFamilies) > 0 && len(s.Spec.IPFamilies) > 0 && s.Spec.IPFamilies[0] != old.Spec.IPFamilies[0] {
		errs = append(errs, field.Invalid(spec.Child("ipFamilies").Index(0), s.Spec.IPFamilies, "may not change once set"))
	}
	return errs
}

func validateServiceStatus(s, _ *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("status", "loadBalancer", "ingress")
	if len(s.Status.LoadBalancer.Ingress) > 0 && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		errs = append(errs, field.Forbidden(at, fmt.Sprintf("may only be used when `spec.type` is %q", corev1.ServiceTypeLoadBalancer)))
	}
	for i, in := range s.Status.LoadBalancer.Ingress {
		at := at.Index(i)
		if in.IP != "" {
			errs = append(errs, validation.IsValidIP(at.Child("ip"), in.IP)...)
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
