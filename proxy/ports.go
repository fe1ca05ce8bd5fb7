package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Port is what to do for one port of one Service.
type Port struct {
	PortID

	// Addresses at which the Service is reached: cluster and external IPs.
	Addresses []netip.Addr
	Number    uint16
	NodePort  uint16 // 0 means none

	// Affinity says for how long after its last connection a client address
	// goes back to the same backend; 0 means not at all.
	Affinity time.Duration

	// Backends in ascending order, each once.
	Backends []netip.AddrPort
}

// equal reports whether two ports ask for the same.
func (p Port) equal(q Port) bool {
	return p.PortID == q.PortID && p.Number == q.Number && p.NodePort == q.NodePort && p.Affinity == q.Affinity &&
		slices.Equal(p.Addresses, q.Addresses) && slices.Equal(p.Backends, q.Backends)
}

// Ports returns what to forward for a Service whose EndpointSlices are given, in
// the order of its ports. A Service without an IPv4 address of its own (headless,
// ExternalName, not allocated yet) has none, and so have protocols other than TCP
// and UDP. svc may be nil.
func Ports(svc *corev1.Service, endpoints []*discoveryv1.EndpointSlice) []Port {
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	var addresses []netip.Addr
	for _, s := range slices.Concat([]string{svc.Spec.ClusterIP}, svc.Spec.ExternalIPs) {
		if a, err := netip.ParseAddr(s); err == nil && a.Is4() && !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	if len(addresses) == 0 {
		return nil
	}
	var ports []Port
	for i := range svc.Spec.Ports {
		sp := &svc.Spec.Ports[i]
		protocol := cmp.Or(sp.Protocol, corev1.ProtocolTCP)
		if protocol != corev1.ProtocolTCP && protocol != corev1.ProtocolUDP {
			continue
		}
		ports = append(ports, Port{
			PortID: PortID{
				Service:  types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name},
				Port:     sp.Name,
				Protocol: protocol,
			},
			Addresses: addresses,
			Number:    uint16(sp.Port),
			NodePort:  uint16(sp.NodePort),
			Affinity:  affinity(svc),
			Backends:  backends(sp.Name, protocol, endpoints),
		})
	}
	return ports
}

// affinity defaults to three hours, as the Service API does.
func affinity(svc *corev1.Service) time.Duration {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		return time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
	}
	return 3 * time.Hour
}

// backends chooses the endpoints of a port: the ready ones or else those that
// serve while they terminate.
func backends(port string, protocol corev1.Protocol, endpoints []*discoveryv1.EndpointSlice) []netip.AddrPort {
	var ready, leaving []netip.AddrPort
	for _, slice := range endpoints {
		if slice.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		number, ok := endpointPort(slice, port, protocol)
		if !ok {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) == 0 {
				continue
			}
			// All addresses of an endpoint are interchangeable (EndpointSlice
			// API), so the first will do.
			a, err := netip.ParseAddr(e.Addresses[0])
			if err != nil || !a.Is4() {
				continue
			}
			c := e.Conditions
			switch {
			case c.Ready == nil || *c.Ready:
				ready = append(ready, netip.AddrPortFrom(a, number))
			case is(c.Serving) && is(c.Terminating):
				leaving = append(leaving, netip.AddrPortFrom(a, number))
			}
		}
	}
	if len(ready) == 0 {
		ready = leaving
	}
	slices.SortFunc(ready, netip.AddrPort.Compare)
	return slices.Compact(ready)
}

func endpointPort(slice *discoveryv1.EndpointSlice, name string, protocol corev1.Protocol) (uint16, bool) {
	for _, p := range slice.Ports {
		have, proto := "", corev1.ProtocolTCP
		if p.Name != nil {
			have = *p.Name
		}
		if p.Protocol != nil {
			proto = *p.Protocol
		}
		if have == name && proto == protocol && p.Port != nil && *p.Port > 0 && *p.Port <= 65535 {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}

func is(b *bool) bool { return b != nil && *b }
