package zone

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/miekg/dns"

	"github.com/sampan-io/sampan/internal/sorting"
)

// A Service is the part of a Service object that names depend on. It is immutable and shares no
// memory with the object.
type Service struct {
	name  string // "web.shop"
	v4    []byte // addresses, four bytes each
	v6    []byte // addresses, sixteen bytes each
	alias string // target of the CNAME, fully qualified; or empty
	ports []port // named ports, if it is not headless
	hosts []host // the endpoints with names, once it is in a zone: by name and then address, without duplicates

	headless bool
	publish  bool // endpoints that are not ready count as well
}

// Endpoints are the part of an EndpointSlice that names depend on. They are immutable.
type Endpoints struct {
	ports []port
	all   []endpoint
}

// A port is a named port.
type port struct {
	name     unique.Handle[string] // few different names are common
	protocol string                // "tcp"
	number   uint16
}

// An endpoint is one endpoint, with its first address.
type endpoint struct {
	name    string
	address netip.Addr
	ready   bool
}

// A host is an endpoint of a headless Service.
type host struct {
	name    string
	address netip.Addr
	ports   []port // shared by the endpoints of a slice
}

// tolerateUnready is an annotation from before there was publishNotReadyAddresses (specification,
// 2.1).
const tolerateUnready = "service.alpha.kubernetes.io/tolerate-unready-endpoints"

// NewService returns the Service of an object, or nil if it has no names: it has no address yet, or
// an invalid name.
func NewService(svc *corev1.Service) *Service {
	if !isLabel(svc.Name) || !isLabel(svc.Namespace) {
		return nil
	}
	s := &Service{
		name:    svc.Name + "." + svc.Namespace,
		publish: svc.Spec.PublishNotReadyAddresses || svc.Annotations[tolerateUnready] == "true",
	}
	switch {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		s.alias = alias(svc.Spec.ExternalName)
	case svc.Spec.ClusterIP == corev1.ClusterIPNone:
		s.headless = true
	default:
		for _, text := range addressesOf(svc) {
			if a, ok := unicast(text); ok {
				s.add(a)
			}
		}
		s.ports = servicePorts(svc)
		if len(s.v4)+len(s.v6) == 0 {
			return nil
		}
	}
	return s
}

// Headless reports whether the records of the Service's name depend on its endpoints.
func (s *Service) Headless() bool { return s != nil && s.headless }

// with returns the Service with its endpoints. If it is not headless only endpoints with a hostname
// have names.
func (s *Service) with(endpoints []*Endpoints) *Service {
	if s == nil || s.alias != "" {
		return s
	}
	found := hosts(endpoints, s.publish, s.headless)
	if len(found) == 0 {
		return s
	}
	full := *s
	full.hosts = found
	if !s.headless {
		return &full
	}
	addresses := make([]netip.Addr, len(full.hosts))
	for i, h := range full.hosts {
		addresses[i] = h.address
	}
	sorting.Slice(addresses, netip.Addr.Compare)
	for _, a := range slices.Compact(addresses) {
		full.add(a)
	}
	return &full
}

func addressesOf(svc *corev1.Service) []string {
	if len(svc.Spec.ClusterIPs) > 0 {
		return svc.Spec.ClusterIPs
	}
	return []string{svc.Spec.ClusterIP}
}

func (s *Service) add(a netip.Addr) {
	if a.Is4() {
		b := a.As4()
		s.v4 = append(s.v4, b[:]...)
	} else {
		b := a.As16()
		s.v6 = append(s.v6, b[:]...)
	}
}

// alias returns an external name, fully qualified, or "" if no CNAME can point to it. Kubernetes
// allows names that look like addresses, but no resolver can look these up.
func alias(name string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if _, err := netip.ParseAddr(name); err == nil || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return ""
	}
	for label := range strings.SplitSeq(name, ".") {
		if len(label) > maxLabel {
			return ""
		}
	}
	return dns.Fqdn(strings.Clone(name))
}

const maxLabel = 63 // bytes, RFC 1035, 2.3.4

func isLabel(s string) bool { return len(validation.IsDNS1123Label(s)) == 0 }

// unicast parses an address that another host can have.
func unicast(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	ok := err == nil && a.Zone() == "" && !a.Is4In6() && !a.IsUnspecified() && !a.IsLoopback() &&
		!a.IsLinkLocalUnicast() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
	return a, ok
}

func servicePorts(svc *corev1.Service) (ports []port) {
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if q, ok := newPort(p.Name, p.Protocol, p.Port); ok {
			ports = append(ports, q)
		}
	}
	return ports
}

// newPort returns a port that can have an SRV record: one with a name.
func newPort(name string, protocol corev1.Protocol, number int32) (port, bool) {
	// The label has an underscore before the name.
	if len(name) >= maxLabel || !isLabel(name) || number < 1 || number > 65535 {
		return port{}, false
	}
	switch protocol {
	case corev1.ProtocolTCP, "":
		return port{unique.Make(name), "tcp", uint16(number)}, true
	case corev1.ProtocolUDP:
		return port{unique.Make(name), "udp", uint16(number)}, true
	case corev1.ProtocolSCTP:
		return port{unique.Make(name), "sctp", uint16(number)}, true
	}
	return port{}, false
}

// NewEndpoints returns the Endpoints of an EndpointSlice.
func NewEndpoints(slice *discoveryv1.EndpointSlice) *Endpoints {
	var e Endpoints
	for _, p := range slice.Ports {
		if p.Name == nil || p.Port == nil {
			continue
		}
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if q, ok := newPort(*p.Name, protocol, *p.Port); ok {
			e.ports = append(e.ports, q)
		}
	}
	e.all = make([]endpoint, 0, len(slice.Endpoints))
	for i := range slice.Endpoints {
		from := &slice.Endpoints[i]
		ready := from.Conditions.Ready == nil || *from.Conditions.Ready
		for _, text := range from.Addresses {
			a, ok := unicast(text)
			if ok && a.Is4() == (slice.AddressType == discoveryv1.AddressTypeIPv4) && a.Is6() == (slice.AddressType == discoveryv1.AddressTypeIPv6) {
				e.all = append(e.all, endpoint{hostname(from), a, ready})
			}
		}
	}
	return &e
}

// hosts returns the endpoints that have names: the ready ones, or all if publish. Endpoints without
// a hostname are named by their address if nameless, or else left out.
func hosts(endpoints []*Endpoints, publish, nameless bool) (all []host) {
	for _, slice := range endpoints {
		for _, e := range slice.all {
			if (e.ready || publish) && (e.name != "" || nameless) {
				all = append(all, host{cmp.Or(e.name, dashed(e.address)), e.address, slice.ports})
			}
		}
	}
	sorting.Slice(all, func(a, b host) int { return cmp.Or(cmp.Compare(a.name, b.name), a.address.Compare(b.address)) })
	return slices.CompactFunc(all, func(a, b host) bool { return a.name == b.name && a.address == b.address })
}

// hostname returns an endpoint's hostname, or "" if it has none.
func hostname(e *discoveryv1.Endpoint) string {
	if e.Hostname != nil && isLabel(*e.Hostname) {
		return strings.Clone(*e.Hostname)
	}
	return ""
}

// dashed returns the name of an endpoint that has no hostname.
func dashed(a netip.Addr) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == ':' {
			return '-'
		}
		return r
	}, a.String())
}

// named returns the endpoints of that hostname.
func (s *Service) named(name string) []host {
	from, found := slices.BinarySearchFunc(s.hosts, name, func(h host, name string) int { return cmp.Compare(h.name, name) })
	if !found {
		return nil
	}
	to := from
	for to < len(s.hosts) && s.hosts[to].name == name {
		to++
	}
	return s.hosts[from:to]
}

// exists reports whether the Service's own name exists (zone-Z1).
func (s *Service) exists() bool { return s != nil && (!s.headless || len(s.hosts) > 0) }
