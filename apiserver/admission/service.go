package admission

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corekinds "github.com/sampan-io/sampan/catalog/core"
)

// keepGranted carries over what the service was given and an update leaves out:
// people update services with the file that they made them from.
func keepGranted(svc, old *corev1.Service) {
	if svc.Spec.Type != corev1.ServiceTypeExternalName && old.Spec.Type != corev1.ServiceTypeExternalName {
		if svc.Spec.ClusterIP == "" {
			svc.Spec.ClusterIP = old.Spec.ClusterIP
		}
		if len(svc.Spec.ClusterIPs) == 0 {
			svc.Spec.ClusterIPs = slices.Clone(old.Spec.ClusterIPs)
		}
	}
	if wantsNodePorts(svc) && wantsNodePorts(old) {
		for i := range svc.Spec.Ports {
			sp := &svc.Spec.Ports[i]
			if sp.NodePort != 0 {
				continue
			}
			// By name, as everything else of a port may change.
			j := slices.IndexFunc(old.Spec.Ports, func(o corev1.ServicePort) bool { return o.Name == sp.Name })
			if j >= 0 && !explicit(svc, old.Spec.Ports[j].NodePort, sp.Protocol) {
				sp.NodePort = old.Spec.Ports[j].NodePort
			}
		}
	}
	if needsHealthPort(svc) && needsHealthPort(old) && svc.Spec.HealthCheckNodePort == 0 {
		svc.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

// explicit reports whether the service names the node port itself.
func explicit(svc *corev1.Service, port int32, protocol corev1.Protocol) bool {
	return slices.ContainsFunc(svc.Spec.Ports, func(sp corev1.ServicePort) bool { return sp.NodePort == port && sp.Protocol == protocol })
}

// dropUnneeded takes away what the service does not need after a change of its
// type, where the update did not touch it. What the update did set stays, and is
// for validation to refuse.
func dropUnneeded(svc, old *corev1.Service) {
	spec, was := &svc.Spec, &old.Spec
	if spec.Type == corev1.ServiceTypeExternalName && was.Type != corev1.ServiceTypeExternalName {
		if spec.ClusterIP == was.ClusterIP && slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
			spec.ClusterIP, spec.ClusterIPs = "", nil
		}
		if slices.Equal(spec.IPFamilies, was.IPFamilies) {
			spec.IPFamilies = nil
		}
		if same(spec.IPFamilyPolicy, was.IPFamilyPolicy) {
			spec.IPFamilyPolicy = nil
		}
		if same(spec.InternalTrafficPolicy, was.InternalTrafficPolicy) {
			spec.InternalTrafficPolicy = nil
		}
	}
	if hasNodePorts(old) && !hasNodePorts(svc) {
		untouched := !slices.ContainsFunc(spec.Ports, func(sp corev1.ServicePort) bool {
			return sp.NodePort != 0 && !slices.ContainsFunc(was.Ports, func(had corev1.ServicePort) bool { return had.NodePort == sp.NodePort }) // whatever the protocol
		})
		if untouched {
			for i := range spec.Ports {
				spec.Ports[i].NodePort = 0
			}
		}
	}
	if corekinds.FromOutside(old) && !corekinds.FromOutside(svc) && spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
	if needsHealthPort(old) && !needsHealthPort(svc) && spec.HealthCheckNodePort == was.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if was.Type == corev1.ServiceTypeLoadBalancer && spec.Type != corev1.ServiceTypeLoadBalancer {
		if same(spec.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts) {
			spec.AllocateLoadBalancerNodePorts = nil
		}
		if same(spec.LoadBalancerClass, was.LoadBalancerClass) {
			spec.LoadBalancerClass = nil
		}
	}
}

func same[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// alignClusterIPs keeps the old field clusterIP and the first of clusterIPs the
// same, for clients that know only one of them.
func alignClusterIPs(svc, old *corev1.Service) {
	spec := &svc.Spec
	if old == nil || spec.ClusterIP != old.Spec.ClusterIP && slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs) {
		switch {
		case spec.ClusterIP == "" && old != nil:
			spec.ClusterIPs = nil
		case spec.ClusterIP != "" && (old != nil || len(spec.ClusterIPs) == 0):
			spec.ClusterIPs = []string{spec.ClusterIP}
		}
	}
}

// setFamilies fills in ipFamilies and ipFamilyPolicy from what was asked for and
// what the cluster has, and returns what does not go together.
func (p *ServiceAddresses) setFamilies(svc, old *corev1.Service) field.ErrorList {
	spec := &svc.Spec
	if spec.Type == corev1.ServiceTypeExternalName || unchangedPreference(svc, old) {
		return nil
	}
	headless := spec.ClusterIP == corev1.ClusterIPNone
	if spec.IPFamilyPolicy == nil {
		policy := corev1.IPFamilyPolicySingleStack
		switch {
		case old != nil && old.Spec.IPFamilyPolicy != nil:
			policy = *old.Spec.IPFamilyPolicy
		case headless && len(spec.Selector) == 0:
			policy = corev1.IPFamilyPolicyRequireDualStack // its endpoints may have any family
		}
		spec.IPFamilyPolicy = &policy
	}
	single := *spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack

	errs := shrink(svc, old, single)
	policyPath := field.NewPath("spec", "ipFamilyPolicy")
	if single && len(spec.ClusterIPs) > 1 {
		errs = append(errs, field.Invalid(policyPath, spec.IPFamilyPolicy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"))
	}
	if single && len(spec.IPFamilies) > 1 {
		errs = append(errs, field.Invalid(policyPath, spec.IPFamilyPolicy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"))
	}
	if !headless {
		errs = append(errs, p.familiesOfAddresses(spec)...)
	}
	if len(errs) > 0 {
		return errs
	}

	if headless && len(spec.Selector) == 0 {
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = p.order[:1:1]
		}
		if !single && len(spec.IPFamilies) == 1 {
			spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
		}
		return nil
	}
	if *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(p.pools) < 2 {
		errs = append(errs, field.Invalid(policyPath, spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services"))
	}
	for i, family := range spec.IPFamilies {
		if _, ok := p.pools[family]; !ok && (family == corev1.IPv4Protocol || family == corev1.IPv6Protocol) { // others are for validation
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilies").Index(i), family, "not configured on this cluster"))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = p.order[:1:1]
	}
	if !single && len(spec.IPFamilies) == 1 && len(p.pools) == 2 {
		spec.IPFamilies = append(spec.IPFamilies, otherFamily(spec.IPFamilies[0]))
	}
	return nil
}

// unchangedPreference reports whether a service that prefers two families asks for nothing new. It
// keeps its number of families even when the cluster has more or fewer families since then.
func unchangedPreference(svc, old *corev1.Service) bool {
	prefers := func(s *corev1.Service) bool {
		return s.Spec.IPFamilyPolicy != nil && *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack
	}
	return old != nil && old.Spec.Type != corev1.ServiceTypeExternalName && prefers(svc) && prefers(old) &&
		slices.Equal(svc.Spec.ClusterIPs, old.Spec.ClusterIPs) && slices.Equal(svc.Spec.IPFamilies, old.Spec.IPFamilies)
}

// shrink gives up the second address and family where an update asks for that
// by its policy; taking them out without saying so is refused.
func shrink(svc, old *corev1.Service, single bool) field.ErrorList {
	if old == nil {
		return nil
	}
	spec, was := &svc.Spec, &old.Spec
	if single {
		if len(spec.ClusterIPs) > 1 && slices.Equal(spec.ClusterIPs, was.ClusterIPs) {
			spec.ClusterIPs = spec.ClusterIPs[:1:1]
		}
		if len(spec.IPFamilies) > 1 && slices.Equal(spec.IPFamilies, was.IPFamilies) {
			spec.IPFamilies = spec.IPFamilies[:1:1]
		}
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("spec", "ipFamilyPolicy")
	if len(spec.ClusterIPs) == 1 && len(was.ClusterIPs) == 2 && spec.ClusterIPs[0] == was.ClusterIPs[0] {
		errs = append(errs, field.Invalid(path, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary cluster IP"))
	}
	if len(spec.IPFamilies) == 1 && len(was.IPFamilies) == 2 && spec.IPFamilies[0] == was.IPFamilies[0] {
		errs = append(errs, field.Invalid(path, spec.IPFamilyPolicy, "must be 'SingleStack' to release the secondary IP family"))
	}
	return errs
}

// familiesOfAddresses adds the families of the addresses that were asked for.
func (p *ServiceAddresses) familiesOfAddresses(spec *corev1.ServiceSpec) field.ErrorList {
	var errs field.ErrorList
	for i, s := range spec.ClusterIPs {
		ip, err := netip.ParseAddr(s)
		if err != nil || i < len(spec.IPFamilies) {
			continue // validation checks written values
		}
		family := familyOf(ip)
		if _, ok := p.pools[family]; !ok {
			errs = append(errs, field.Invalid(field.NewPath("spec", "clusterIPs").Index(i), spec.ClusterIPs, fmt.Sprintf("%s is not configured on this cluster", family)))
			continue
		}
		spec.IPFamilies = append(spec.IPFamilies, family)
	}
	return errs
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
