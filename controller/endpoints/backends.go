package endpoints

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/sorting"
)

// A backend is a pod behind a service, before it is written in either form.
type backend struct {
	pod         *corev1.Pod
	ports       []discoveryv1.EndpointPort // sorted by name
	ready       bool                       // gets new connections
	serving     bool
	terminating bool
	hostname    string
	portless    bool // it knows none of the ports that the service has
}

// backendsOf returns the pods behind a service in the order of their names. Pods that have ended or have no address yet are
// left out.
func backendsOf(svc *corev1.Service, pods []*corev1.Pod) []backend {
	var all []backend
	for _, p := range pods {
		if podstate.Finished(p) || p.Status.PodIP == "" && len(p.Status.PodIPs) == 0 || !selects(svc, p.Labels) {
			continue
		}
		b := backend{pod: p, serving: podstate.Ready(p), terminating: p.DeletionTimestamp != nil}
		b.ready = svc.Spec.PublishNotReadyAddresses || b.serving && !b.terminating
		if p.Spec.Hostname != "" && p.Spec.Subdomain == svc.Name {
			b.hostname = p.Spec.Hostname
		}
		for _, sp := range svc.Spec.Ports {
			number, ok := portOn(p, sp)
			if !ok {
				continue // a name that this pod does not know
			}
			protocol := sp.Protocol
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			b.ports = append(b.ports, discoveryv1.EndpointPort{Name: &sp.Name, Port: &number, Protocol: &protocol, AppProtocol: sp.AppProtocol})
		}
		b.portless = len(b.ports) == 0 && len(svc.Spec.Ports) > 0
		sorting.Slice(b.ports, func(x, y discoveryv1.EndpointPort) int { return cmp.Compare(*x.Name, *y.Name) })
		all = append(all, b)
	}
	sorting.Slice(all, func(a, b backend) int { return cmp.Compare(a.pod.Name, b.pod.Name) })
	return all
}

// selects says that the service has a selector and it matches labels.
func selects(svc *corev1.Service, labels map[string]string) bool {
	if len(svc.Spec.Selector) == 0 || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	for k, v := range svc.Spec.Selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// portOn returns the number of a service port on a pod: the target as it is, the port of
// that name in a container, or, without a target, the service's own.
func portOn(pod *corev1.Pod, sp corev1.ServicePort) (int32, bool) {
	switch {
	case sp.TargetPort.Type == intstr.String && sp.TargetPort.StrVal != "":
		protocol := cmp.Or(sp.Protocol, corev1.ProtocolTCP)
		for _, c := range slices.Concat(pod.Spec.Containers, restartingInits(pod)) {
			for _, cp := range c.Ports {
				if cp.Name == sp.TargetPort.StrVal && cmp.Or(cp.Protocol, corev1.ProtocolTCP) == protocol {
					return cp.ContainerPort, true
				}
			}
		}
		return 0, false
	case sp.TargetPort.IntVal != 0:
		return sp.TargetPort.IntVal, true
	}
	return sp.Port, true
}

// restartingInits returns the init containers that go on running beside the pod's others.
func restartingInits(pod *corev1.Pod) (inits []corev1.Container) {
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			inits = append(inits, c)
		}
	}
	return inits
}

func headless(svc *corev1.Service) bool { return svc.Spec.ClusterIP == corev1.ClusterIPNone }

// families returns the address families of a service.
func families(svc *corev1.Service) []discoveryv1.AddressType {
	var types []discoveryv1.AddressType
	for _, f := range svc.Spec.IPFamilies {
		types = append(types, discoveryv1.AddressType(f)) // the names are the same
	}
	if len(types) == 0 {
		if a, err := netip.ParseAddr(svc.Spec.ClusterIP); err == nil && a.Is6() {
			return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv6}
		}
		return []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}
	}
	return types
}

// addressOf returns the pod's address of a family, or "" if it has none that an EndpointSlice may have: nodes write these
// addresses, and a slice with a wrong one would be refused as a whole.
func addressOf(pod *corev1.Pod, family discoveryv1.AddressType) string {
	all := []string{pod.Status.PodIP}
	for _, ip := range pod.Status.PodIPs {
		all = append(all, ip.IP)
	}
	for _, text := range all {
		if a, err := netip.ParseAddr(text); err == nil && a.IsGlobalUnicast() && a.Is6() == (family == discoveryv1.AddressTypeIPv6) {
			return text
		}
	}
	return ""
}

// portKey returns a key that is equal for equal sets of ports.
func portKey(ports []discoveryv1.EndpointPort) string {
	var parts []string
	for _, p := range ports {
		app := ""
		if p.AppProtocol != nil {
			app = *p.AppProtocol
		}
		parts = append(parts, fmt.Sprintf("%s/%d/%s/%s", deref(p.Name), deref(p.Port), deref(p.Protocol), app))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func podReference(pod *corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// labelsFor returns the labels of the Endpoints or EndpointSlices of a service: its labels and more.
func labelsFor(svc *corev1.Service, more map[string]string) map[string]string {
	labels := maps.Clone(svc.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	delete(labels, corev1.IsHeadlessService)
	if headless(svc) {
		labels[corev1.IsHeadlessService] = ""
	}
	maps.Copy(labels, more)
	return labels
}
