package podspec

import (
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate returns everything that is wrong with the spec of a pod. The spec
// must have been through [DefaultPod]. Specs that do not change are not checked again: a pod that
// was stored before a rule existed can still change elsewhere, so that it can be deleted.
func Validate(spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	return faults(at, func(at where) field.ErrorList {
		c := checker{spec: spec, isPod: true}
		c.check(at)
		return c.errs
	})
}

// ValidateTemplate returns everything that is wrong with a template of pods. Its
// spec must have been through [Default]. On an update old is the template that t replaces, else it is nil:
// a template that was stored before a rule existed stays valid.
func ValidateTemplate(t, old *corev1.PodTemplateSpec, at *field.Path) field.ErrorList {
	if old != nil && equality.Semantic.DeepEqual(t, old) {
		return nil
	}
	return faults(at, func(at where) field.ErrorList {
		c := checker{spec: &t.Spec}
		c.errs = append(c.errs, metav1validation.ValidateLabels(t.Labels, at.child("labels").path)...)
		c.errs = append(c.errs, apivalidation.ValidateAnnotations(t.Annotations, at.child("annotations").path)...)
		c.check(at.child("spec"))
		if len(t.Spec.EphemeralContainers) > 0 {
			c.forbidden(at.child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template")
		}
		return c.errs
	})
}

// A checker checks one spec.
type checker struct {
	report
	spec  *corev1.PodSpec
	isPod bool // rather than a template

	volumes map[string]*corev1.VolumeSource // by name, from checkVolumes on
}

func (c *checker) check(at where) {
	c.checkVolumes(at.child("volumes"))
	c.checkContainers(at)
	c.checkLife(at)
	c.checkIdentity(at)
	c.checkDNS(at)
	c.checkPodSecurity(at)
	c.checkPlacement(at)
	c.checkPodResources(at)
}

// checkLife checks what decides when a pod starts and ends.
func (c *checker) checkLife(at where) {
	s := c.spec
	requiredOf(&c.report, at.child("restartPolicy"), s.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	if d := s.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > math.MaxInt32) {
		c.invalid(at.child("activeDeadlineSeconds"), *d, validation.InclusiveRangeError(1, math.MaxInt32))
	}
	if s.TerminationGracePeriodSeconds == nil {
		c.required(at.child("terminationGracePeriodSeconds"))
	}
	for i, g := range s.ReadinessGates {
		c.each(at.child("readinessGates").index(i).child("conditionType"), string(g.ConditionType), validation.IsQualifiedName(string(g.ConditionType)))
	}
	gates := map[string]bool{}
	for i, g := range s.SchedulingGates {
		at := at.child("schedulingGates").index(i)
		c.each(at, g.Name, validation.IsQualifiedName(g.Name))
		if gates[g.Name] {
			c.add(field.Duplicate(at.path, g.Name))
		}
		gates[g.Name] = true
	}
	if s.PreemptionPolicy != nil {
		requiredOf(&c.report, at.child("preemptionPolicy"), *s.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
	if s.OS != nil {
		requiredOf(&c.report, at.child("os", "name"), s.OS.Name, corev1.Linux, corev1.Windows)
	}
}

// checkIdentity checks the names that a pod has and uses.
func (c *checker) checkIdentity(at where) {
	s := c.spec
	names := []struct {
		field, value string
		rule         func(string) []string
	}{
		{"serviceAccountName", s.ServiceAccountName, validation.IsDNS1123Subdomain},
		{"nodeName", s.NodeName, validation.IsDNS1123Subdomain},
		{"hostname", s.Hostname, validation.IsDNS1123Label},
		{"subdomain", s.Subdomain, validation.IsDNS1123Label},
		{"priorityClassName", s.PriorityClassName, validation.IsDNS1123Subdomain},
	}
	if s.RuntimeClassName != nil {
		names = append(names, struct {
			field, value string
			rule         func(string) []string
		}{"runtimeClassName", *s.RuntimeClassName, validation.IsDNS1123Subdomain})
	}
	for _, n := range names {
		if n.value != "" {
			c.each(at.child(n.field), n.value, n.rule(n.value))
		}
	}
	if s.RuntimeClassName != nil && *s.RuntimeClassName == "" {
		c.each(at.child("runtimeClassName"), "", validation.IsDNS1123Subdomain(""))
	}
	for i, a := range s.HostAliases {
		at := at.child("hostAliases").index(i)
		c.add(validation.IsValidIPForLegacyField(at.child("ip").path, a.IP, true, nil)...)
		for j, h := range a.Hostnames {
			c.each(at.child("hostnames").index(j), h, validation.IsDNS1123Subdomain(h))
		}
	}
	c.checkHostnameOverride(at)
}

const maxHostname = 64 // Linux's limit

func (c *checker) checkHostnameOverride(at where) {
	name := c.spec.HostnameOverride
	if name == nil {
		return
	}
	at = at.child("hostnameOverride")
	if len(*name) > maxHostname {
		c.add(field.TooLong(at.path, *name, maxHostname))
	}
	c.each(at, *name, validation.IsDNS1123Subdomain(*name))
	if c.spec.SetHostnameAsFQDN != nil && *c.spec.SetHostnameAsFQDN {
		c.forbidden(at, "may not be specified when `setHostnameAsFQDN` is true")
	}
	if c.spec.HostNetwork {
		c.forbidden(at, "may not be specified when `hostNetwork` is true")
	}
}

// Limits of resolv.conf.
const (
	maxNameservers     = 3
	maxSearchPaths     = 32
	maxSearchListChars = 2048
)

func (c *checker) checkDNS(at where) {
	s := c.spec
	requiredOf(&c.report, at.child("dnsPolicy"), s.DNSPolicy,
		corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)
	servers := at.child("dnsConfig", "nameservers")
	if s.DNSPolicy == corev1.DNSNone && (s.DNSConfig == nil || len(s.DNSConfig.Nameservers) == 0) {
		c.add(field.Required(servers.path, fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", corev1.DNSNone)))
	}
	if s.DNSConfig == nil {
		return
	}
	if n := s.DNSConfig.Nameservers; len(n) > maxNameservers {
		c.invalid(servers, n, fmt.Sprintf("must not have more than %v nameservers", maxNameservers))
	}
	for i, ip := range s.DNSConfig.Nameservers {
		c.add(validation.IsValidIPForLegacyField(servers.index(i).path, ip, true, nil)...)
	}
	searches := at.child("dnsConfig", "searches")
	if n := s.DNSConfig.Searches; len(n) > maxSearchPaths {
		c.invalid(searches, n, fmt.Sprintf("must not have more than %v search paths", maxSearchPaths))
	}
	if all := strings.Join(s.DNSConfig.Searches, " "); len(all) > maxSearchListChars {
		c.invalid(searches, s.DNSConfig.Searches, fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchListChars))
	}
	for i, domain := range s.DNSConfig.Searches {
		if domain == "." {
			continue
		}
		c.each(searches.index(i), domain, validation.IsDNS1123SubdomainWithUnderscore(strings.TrimSuffix(domain, ".")))
	}
	for i, o := range s.DNSConfig.Options {
		if o.Name == "" {
			c.required(at.child("dnsConfig", "options").index(i))
		}
	}
}

// ValidateLimits checks the limits of a container, which are below at: "limits[cpu]".
func ValidateLimits(limits corev1.ResourceList, at *field.Path) field.ErrorList {
	c := checker{spec: &corev1.PodSpec{}}
	c.checkResources(&corev1.ResourceRequirements{Limits: limits}, where{at})
	return c.errs
}

// ValidateTolerations checks tolerations of pods.
func ValidateTolerations(tolerations []corev1.Toleration, at *field.Path) field.ErrorList {
	c := checker{spec: &corev1.PodSpec{Tolerations: tolerations}}
	c.checkTolerations(where{at})
	return c.errs
}
