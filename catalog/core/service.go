package core

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/catalog"
)

func services() *catalog.Kind {
	spec := corev1.ServiceSpec{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: gvk("Service"),
		Resource:         "services",
		Singular:         "service",
		ShortNames:       []string{"svc"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() catalog.Object { return &corev1.Service{} },
		NewList:          func() runtime.Object { return &corev1.ServiceList{} },
		Default:          catalog.Default(defaultService),
		Prepare:          catalog.Prepare(prepareService),
		Validate:         catalog.Validate(validateService),
		ValidateName:     apivalidation.NameIsDNS1035Label,
		Columns: []catalog.Column{
			catalog.Text("Type", spec["type"], func(s *corev1.Service) string { return string(s.Spec.Type) }),
			catalog.Text("Cluster-IP", spec["clusterIP"], func(s *corev1.Service) string {
				if len(s.Spec.ClusterIPs) > 0 {
					return s.Spec.ClusterIPs[0]
				}
				return catalog.OrNone(s.Spec.ClusterIP)
			}),
			catalog.Text("External-IP", spec["externalIPs"], externalAddress),
			catalog.Text("Port(s)", spec["ports"], servicePorts),
			catalog.Age(),
			catalog.Text("Selector", spec["selector"], func(s *corev1.Service) string {
				return catalog.OrNone(labels.FormatLabels(s.Spec.Selector))
			}).Wide(),
		},
		Fields: map[string]func(catalog.Object) string{
			"spec.clusterIP": catalog.Value(func(s *corev1.Service) string { return s.Spec.ClusterIP }),
			"spec.type":      catalog.Value(func(s *corev1.Service) string { return string(s.Spec.Type) }),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: readWrite,
			Prepare: catalog.Prepare(func(s, old *corev1.Service) {
				s.Spec = old.Spec
			}),
			Validate: catalog.Validate(validateServiceStatus),
		}},
	}
}

// externalAddress says under which addresses a service can be reached from
// outside.
func externalAddress(s *corev1.Service) string {
	given := s.Spec.ExternalIPs
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return catalog.OrNone(strings.Join(given, ","))
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		var at []string
		for _, in := range s.Status.LoadBalancer.Ingress {
			if a := cmp.Or(in.IP, in.Hostname); a != "" && !slices.Contains(at, a) {
				at = append(at, a)
			}
		}
		if at = append(at, given...); len(at) == 0 {
			return "<pending>"
		}
		return strings.Join(at, ",")
	}
	return catalog.Unknown
}

func servicePorts(s *corev1.Service) string {
	var ports []string
	for _, p := range s.Spec.Ports {
		text := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.NodePort > 0 {
			text = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		}
		ports = append(ports, text)
	}
	return catalog.OrNone(strings.Join(ports, ","))
}

const defaultAffinitySeconds = 3 * 60 * 60

func defaultService(s *corev1.Service) {
	spec := &s.Spec
	spec.SessionAffinity = cmp.Or(spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(defaultAffinitySeconds))},
			}
		}
	}
	spec.Type = cmp.Or(spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		p := &spec.Ports[i]
		p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if fromOutside(s) {
		spec.ExternalTrafficPolicy = cmp.Or(spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeExternalName && spec.InternalTrafficPolicy == nil {
		spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		if spec.AllocateLoadBalancerNodePorts == nil {
			spec.AllocateLoadBalancerNodePorts = new(true)
		}
		for i := range s.Status.LoadBalancer.Ingress {
			if in := &s.Status.LoadBalancer.Ingress[i]; in.IP != "" && in.IPMode == nil {
				in.IPMode = new(corev1.LoadBalancerIPModeVIP)
			}
		}
	}
	sameClusterIP(spec)
	defaultFamilies(spec)
}

// sameClusterIP makes the single field and the list agree where only one of them
// was given. Where they differ, validation says so.
func sameClusterIP(spec *corev1.ServiceSpec) {
	switch {
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		spec.ClusterIPs = []string{spec.ClusterIP}
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		spec.ClusterIP = spec.ClusterIPs[0]
	}
}

// defaultFamilies fills in what follows from the service itself. A service whose
// addresses say nothing is of IPv4: a cluster of one family is the only one
// there is so far.
func defaultFamilies(spec *corev1.ServiceSpec) {
	if spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	if spec.IPFamilyPolicy == nil {
		policy := corev1.IPFamilyPolicySingleStack
		if len(spec.IPFamilies) > 1 || len(spec.ClusterIPs) > 1 {
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
		spec.IPFamilyPolicy = &policy
	}
	if len(spec.IPFamilies) > 0 {
		return
	}
	for _, ip := range spec.ClusterIPs {
		if parsed := net.ParseIP(ip); parsed != nil {
			family := corev1.IPv6Protocol
			if parsed.To4() != nil {
				family = corev1.IPv4Protocol
			}
			spec.IPFamilies = append(spec.IPFamilies, family)
		}
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	}
}

// fromOutside says whether the service can be reached from outside the cluster.
func fromOutside(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	case corev1.ServiceTypeClusterIP:
		return len(s.Spec.ExternalIPs) > 0
	}
	return false
}

func hasClusterIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

func hasNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort ||
		s.Spec.Type == corev1.ServiceTypeLoadBalancer && (s.Spec.AllocateLoadBalancerNodePorts == nil || *s.Spec.AllocateLoadBalancerNodePorts)
}

func hasHealthPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// prepareService drops the status of a new service. An updated one keeps what
// the cluster has allocated for it, unless it has become a service that has no
// such thing.
func prepareService(s, old *corev1.Service) {
	if old == nil {
		s.Status = corev1.ServiceStatus{}
		return
	}
	s.Status = old.Status
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	keepAllocated(s, old)
	dropUnneeded(s, old)
}

// keepAllocated takes over what a client left out that does not know it.
func keepAllocated(s, old *corev1.Service) {
	if hasClusterIP(s) && hasClusterIP(old) {
		if s.Spec.ClusterIP == "" && len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = old.Spec.ClusterIP, slices.Clone(old.Spec.ClusterIPs)
			s.Spec.IPFamilies = slices.Clone(old.Spec.IPFamilies)
		}
		// Clients that know only the single field change that alone.
		if s.Spec.ClusterIP != old.Spec.ClusterIP && slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) {
			s.Spec.ClusterIPs = nil
			sameClusterIP(&s.Spec)
		}
	}
	if hasNodePorts(s) && hasNodePorts(old) {
		type key struct {
			protocol corev1.Protocol
			port     int32
		}
		was, taken := map[key]int32{}, map[int32]bool{}
		for _, p := range old.Spec.Ports {
			was[key{p.Protocol, p.Port}] = p.NodePort
		}
		for _, p := range s.Spec.Ports {
			taken[p.NodePort] = true
		}
		for i := range s.Spec.Ports {
			p := &s.Spec.Ports[i]
			if port := was[key{p.Protocol, p.Port}]; p.NodePort == 0 && !taken[port] {
				p.NodePort = port
				taken[port] = true
			}
		}
	}
	if hasHealthPort(s) && hasHealthPort(old) && s.Spec.HealthCheckNodePort == 0 {
		s.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

// dropUnneeded takes away what a service of the old type had and one of the new
// type can't have, if the client has left it as it was. What the client sets
// itself is left to validation.
func dropUnneeded(s, old *corev1.Service) {
	if !hasClusterIP(s) && hasClusterIP(old) {
		if s.Spec.ClusterIP == old.Spec.ClusterIP && slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
		}
		if slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies) {
			s.Spec.IPFamilies = nil
		}
		if same(s.Spec.IPFamilyPolicy, old.Spec.IPFamilyPolicy) {
			s.Spec.IPFamilyPolicy = nil
		}
		if same(s.Spec.InternalTrafficPolicy, old.Spec.InternalTrafficPolicy) {
			s.Spec.InternalTrafficPolicy = nil
		}
	}
	if hasNodePorts(old) && !hasNodePorts(s) && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		was := map[string]bool{}
		for _, p := range old.Spec.Ports {
			was[portKey(p)] = true
		}
		for i := range s.Spec.Ports {
			if was[portKey(s.Spec.Ports[i])] {
				s.Spec.Ports[i].NodePort = 0
			}
		}
	}
	if hasHealthPort(old) && !hasHealthPort(s) && s.Spec.HealthCheckNodePort == old.Spec.HealthCheckNodePort {
		s.Spec.HealthCheckNodePort = 0
	}
	if fromOutside(old) && !fromOutside(s) && s.Spec.ExternalTrafficPolicy == old.Spec.ExternalTrafficPolicy {
		s.Spec.ExternalTrafficPolicy = ""
	}
	if old.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		if same(s.Spec.AllocateLoadBalancerNodePorts, old.Spec.AllocateLoadBalancerNodePorts) {
			s.Spec.AllocateLoadBalancerNodePorts = nil
		}
		if same(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
			s.Spec.LoadBalancerClass = nil
		}
	}
}

func portKey(p corev1.ServicePort) string {
	return string(p.Protocol) + strconv.Itoa(int(p.Port)) + "/" + strconv.Itoa(int(p.NodePort))
}

func same[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}
