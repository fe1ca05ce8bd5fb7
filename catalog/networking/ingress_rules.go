package networking

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// classAnnotation named the class of an ingress before there was a field for it.
const classAnnotation = "kubernetes.io/ingress.class"

// longestController is how long the name of a controller may be, in bytes.
const longestController = 250

// ingressWarnings warns of the old annotation.
func ingressWarnings(i, old *networkingv1.Ingress) []string {
	if old != nil {
		return nil
	}
	if _, ok := i.Annotations[classAnnotation]; ok && i.Spec.IngressClassName == nil {
		return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", classAnnotation)}
	}
	return nil
}

func ingressStatusWarnings(i *networkingv1.Ingress) (all []string) {
	for n, in := range i.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			all = append(all, validation.GetWarningsForIP(field.NewPath("status", "loadBalancer", "ingress").Index(n), in.IP)...)
		}
	}
	return all
}

func validateIngress(i, old *networkingv1.Ingress) (errs field.ErrorList) {
	at, s := field.NewPath("spec"), &i.Spec
	if len(s.Rules) == 0 && s.DefaultBackend == nil {
		errs = append(errs, field.Invalid(at, s.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if s.DefaultBackend != nil {
		errs = append(errs, validateBackend(s.DefaultBackend, at.Child("defaultBackend"))...)
	}
	// Stored values stay allowed.
	looseHosts := old != nil && slices.ContainsFunc(old.Spec.Rules, func(r networkingv1.IngressRule) bool {
		return strings.Contains(r.Host, "*") && len(validatePaths(r.HTTP, nil)) > 0
	})
	looseSecrets := old != nil && slices.ContainsFunc(old.Spec.TLS, func(t networkingv1.IngressTLS) bool {
		return len(secretFaults(t.SecretName)) > 0
	})
	for k, r := range s.Rules {
		at := at.Child("rules").Index(k)
		wild := strings.Contains(r.Host, "*")
		if r.Host != "" {
			if netutils.ParseIPSloppy(r.Host) != nil {
				errs = append(errs, field.Invalid(at.Child("host"), r.Host, "must be a DNS name, not an IP address"))
			}
			errs = append(errs, validateHost(r.Host, at.Child("host"))...)
		}
		if !wild || !looseHosts {
			errs = append(errs, validatePaths(r.HTTP, at)...)
		}
	}
	for k, t := range s.TLS {
		at := at.Child("tls").Index(k)
		for n, host := range t.Hosts {
			errs = append(errs, validateHost(host, at.Child("hosts").Index(n))...)
		}
		if !looseSecrets {
			for _, fault := range secretFaults(t.SecretName) {
				errs = append(errs, field.Invalid(at.Child("secretName"), t.SecretName, fault))
			}
		}
	}
	class := s.IngressClassName
	if class != nil {
		for _, fault := range apivalidation.NameIsDNSSubdomain(*class, false) {
			errs = append(errs, field.Invalid(at.Child("ingressClassName"), *class, fault))
		}
	}
	if value, ok := i.Annotations[classAnnotation]; old == nil && ok && class != nil && value != *class {
		errs = append(errs, field.Invalid(field.NewPath("annotations").Child(classAnnotation), value, "must match `ingressClassName` when both are specified"))
	}
	return errs
}

func secretFaults(name string) []string {
	if name == "" {
		return nil
	}
	return apivalidation.NameIsDNSSubdomain(name, false)
}

func validateHost(host string, at *field.Path) (errs field.ErrorList) {
	rule := validation.IsDNS1123Subdomain
	if strings.Contains(host, "*") {
		rule = validation.IsWildcardDNS1123Subdomain
	}
	for _, fault := range rule(host) {
		errs = append(errs, field.Invalid(at, host, fault))
	}
	return errs
}

func validatePaths(http *networkingv1.HTTPIngressRuleValue, rule *field.Path) (errs field.ErrorList) {
	if http == nil {
		return nil
	}
	at := rule.Child("http", "paths")
	if len(http.Paths) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	for i := range http.Paths {
		errs = append(errs, validatePath(&http.Paths[i], at.Index(i))...)
	}
	return errs
}

func validatePath(p *networkingv1.HTTPIngressPath, at *field.Path) (errs field.ErrorList) {
	if p.PathType == nil {
		return field.ErrorList{field.Required(at.Child("pathType"), "pathType must be specified")}
	}
	bad := func(why string) { errs = append(errs, field.Invalid(at.Child("path"), p.Path, why)) }
	absolute := strings.HasPrefix(p.Path, "/")
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		if !absolute {
			bad("must be an absolute path")
		}
		for _, s := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(p.Path, s) {
				bad(fmt.Sprintf("must not contain '%s'", s))
			}
		}
		for _, s := range []string{"/..", "/."} {
			if strings.HasSuffix(p.Path, s) {
				bad(fmt.Sprintf("cannot end with '%s'", s))
			}
		}
	case networkingv1.PathTypeImplementationSpecific:
		if p.Path != "" && !absolute {
			bad("must be an absolute path")
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("pathType"), *p.PathType, []networkingv1.PathType{
			networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix,
		}))
	}
	return append(errs, validateBackend(&p.Backend, at.Child("backend"))...)
}

func validateBackend(b *networkingv1.IngressBackend, at *field.Path) (errs field.ErrorList) {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(at, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return validateReference(b.Resource, at.Child("resource"))
	case b.Service == nil:
		return field.ErrorList{field.Invalid(at, "", "resource or service backend is required")}
	}
	s, name := b.Service, at.Child("service", "name")
	if s.Name == "" {
		errs = append(errs, field.Required(name, ""))
	} else {
		for _, fault := range apivalidation.NameIsDNSLabel(s.Name, false) {
			errs = append(errs, field.Invalid(name, s.Name, fault))
		}
	}
	port := at.Child("service", "port")
	switch {
	case s.Port.Name != "" && s.Port.Number != 0:
		errs = append(errs, field.Invalid(at, "", "cannot set both port name & port number"))
	case s.Port.Name != "":
		for _, fault := range validation.IsValidPortName(s.Port.Name) {
			errs = append(errs, field.Invalid(port.Child("name"), s.Port.Name, fault))
		}
	case s.Port.Number != 0:
		for _, fault := range validation.IsValidPortNum(int(s.Port.Number)) {
			errs = append(errs, field.Invalid(port.Child("number"), s.Port.Number, fault))
		}
	default:
		errs = append(errs, field.Required(at, "port name or number is required"))
	}
	return errs
}

func validateReference(r *corev1.TypedLocalObjectReference, at *field.Path) (errs field.ErrorList) {
	if r.APIGroup != nil {
		for _, fault := range validation.IsDNS1123Subdomain(*r.APIGroup) {
			errs = append(errs, field.Invalid(at.Child("apiGroup"), *r.APIGroup, fault))
		}
	}
	errs = append(errs, validateSegment(r.Kind, at.Child("kind"))...)
	return append(errs, validateSegment(r.Name, at.Child("name"))...)
}

func validateIngressStatus(i, old *networkingv1.Ingress) (errs field.ErrorList) {
	var before []string
	for _, in := range old.Status.LoadBalancer.Ingress {
		before = append(before, in.IP)
	}
	for k, in := range i.Status.LoadBalancer.Ingress {
		at := field.NewPath("status", "loadBalancer", "ingress").Index(k)
		if in.IP != "" {
			errs = append(errs, validation.IsValidIPForLegacyField(at.Child("ip"), in.IP, true, before)...)
		}
		if in.Hostname == "" {
			continue
		}
		for _, fault := range validation.IsDNS1123Subdomain(in.Hostname) {
			errs = append(errs, field.Invalid(at.Child("hostname"), in.Hostname, fault))
		}
		if netutils.ParseIPSloppy(in.Hostname) != nil {
			errs = append(errs, field.Invalid(at.Child("hostname"), in.Hostname, "must be a DNS name, not an IP address"))
		}
	}
	return errs
}

func validateIngressClass(c, old *networkingv1.IngressClass) (errs field.ErrorList) {
	at := field.NewPath("spec")
	controller := at.Child("controller")
	if len(c.Spec.Controller) > longestController {
		errs = append(errs, field.TooLong(controller, "", longestController))
	}
	errs = append(errs, validation.IsDomainPrefixedPath(controller, c.Spec.Controller)...)
	if c.Spec.Parameters != nil {
		errs = append(errs, validateParameters(c.Spec.Parameters, at.Child("parameters"))...)
	}
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(c.Spec.Controller, old.Spec.Controller, controller)...)
	}
	return errs
}

func validateParameters(p *networkingv1.IngressClassParametersReference, at *field.Path) field.ErrorList {
	errs := validateReference(&corev1.TypedLocalObjectReference{APIGroup: p.APIGroup, Kind: p.Kind, Name: p.Name}, at)
	scope, namespace := at.Child("scope"), at.Child("namespace")
	if p.Scope == nil {
		return append(errs, field.Required(scope, ""))
	}
	switch *p.Scope {
	case networkingv1.IngressClassParametersReferenceScopeCluster:
		if p.Namespace != nil {
			errs = append(errs, field.Forbidden(namespace, "`parameters.scope` is set to 'Cluster'"))
		}
	case networkingv1.IngressClassParametersReferenceScopeNamespace:
		if p.Namespace == nil {
			return append(errs, field.Required(namespace, "`parameters.scope` is set to 'Namespace'"))
		}
		for _, fault := range apivalidation.ValidateNamespaceName(*p.Namespace, false) {
			errs = append(errs, field.Invalid(namespace, *p.Namespace, fault))
		}
	default:
		errs = append(errs, field.NotSupported(scope, *p.Scope, []string{
			networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace,
		}))
	}
	return errs
}
