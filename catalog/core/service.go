package core

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/clusterip"
)

func services() *catalog.Kind {
	spec := corev1.ServiceSpec{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: gvk("Service"),
		Resource:         "services",
		Lifecycle:        catalog.Lifecycle{AnswersDeleted: true},
		CreatedByUpdate:  true,
		Singular:         "service",
		ShortNames:       []string{"svc"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() catalog.Object { return &corev1.Service{} },
		NewList:          func() runtime.Object { return &corev1.ServiceList{} },
		Default:          catalog.Default(defaultService),
		Prepare:          catalog.Prepare(prepareService),
		Validate:         catalog.Validate(validateService),
		Warn:             catalog.Warn(serviceWarnings),
		ValidateName:     apivalidation.NameIsDNSLabel, // since v1.37 a name may begin with a digit
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
		Storing: catalog.Storing{Sole: soleOfService},
		Subresources: []catalog.Subresource{
			{
				Name:  "status",
				Verbs: readWrite,
				Shape: catalog.Part{
					Prepare: catalog.Prepare(func(s, old *corev1.Service) {
						s.Spec = old.Spec
					}),
					Validate: catalog.Validate(validateServiceStatus),
					Warn:     catalog.Warn(warnOfServiceStatus),
				},
			},
			proxied(catalog.ServiceProxy, "ServiceProxyOptions", func() runtime.Object { return &corev1.ServiceProxyOptions{} }),
		},
	}
}

// soleOfService returns the addresses and node ports of a service. See
// [clusterip.Sole] and [ServiceNodePort].
func soleOfService(obj catalog.Object) []string {
	s := obj.(*corev1.Service)
	var held []string
	for _, text := range s.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(text); err == nil { // "None" is not an address
			held = append(held, clusterip.Sole(ip))
		}
	}
	for _, port := range NodePorts(s) {
		held = append(held, ServiceNodePort(port))
	}
	return held
}

// ServiceNodePort is the word for holding a node port, in Sole of the Service kind.
func ServiceNodePort(port int32) string { return "nodePort=" + strconv.Itoa(int(port)) }

// NodePorts returns all node ports of a service, each once: ports of several protocols may
// share one.
func NodePorts(s *corev1.Service) []int32 {
	var ports []int32
	seen := map[int32]bool{}
	add := func(port int32) {
		if port != 0 && !seen[port] {
			seen[port] = true
			ports = append(ports, port)
		}
	}
	for i := range s.Spec.Ports {
		add(s.Spec.Ports[i].NodePort)
	}
	add(s.Spec.HealthCheckNodePort)
	return ports
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

// defaultService leaves out what depends on the cluster: addresses, their
// families and node ports are given by admission.
func defaultService(s *corev1.Service) {
	spec := &s.Spec
	spec.SessionAffinity = cmp.Or(spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil // left over from ClientIP
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
		if p.Protocol == "" {
			p.Protocol = corev1.ProtocolTCP
		}
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if FromOutside(s) {
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
}

// FromOutside says whether the service can be reached from outside the cluster.
func FromOutside(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	case corev1.ServiceTypeClusterIP:
		return len(s.Spec.ExternalIPs) > 0
	default: // a name for something outside
		return false
	}
}

func hasClusterIP(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

func hasHealthPort(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// prepareService drops the status of a new service and keeps that of an old one.
// What the cluster allocates for a service is carried over, and dropped after a
// change of type, by the admission plug-in that allocates it.
func prepareService(s, old *corev1.Service) {
	if p := s.Spec.InternalTrafficPolicy; s.Spec.Type == corev1.ServiceTypeExternalName && p != nil && isInternalPolicy(*p) {
		s.Spec.InternalTrafficPolicy = nil // no traffic goes through it
	}
	if old == nil {
		s.Status = corev1.ServiceStatus{}
		if s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIPs = []string{s.Spec.ClusterIP} // from a client that knows no more than one
		}
		return
	}
	s.Status = old.Status
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

func isInternalPolicy(p corev1.ServiceInternalTrafficPolicy) bool {
	return p == corev1.ServiceInternalTrafficPolicyCluster || p == corev1.ServiceInternalTrafficPolicyLocal
}

func same[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}
