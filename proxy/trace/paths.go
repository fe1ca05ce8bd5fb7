package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/proxy"
)

// A Kind is the kind of address of a [Path].
type Kind string

// The kinds of addresses.
const (
	ClusterIP    Kind = "ClusterIP"
	NodePort     Kind = "NodePort"
	ExternalIP   Kind = "ExternalIP"
	LoadBalancer Kind = "LoadBalancer"
	Headless     Kind = "Headless" // it has no address
)

func (k Kind) words() string {
	return map[Kind]string{
		ClusterIP: "the cluster IP", NodePort: "the node port", ExternalIP: "an external IP", LoadBalancer: "the address of the load balancer",
	}[k]
}

// A Path is one address and port of a Service, as a client writes it.
type Path struct {
	Kind Kind
	At   netip.AddrPort // not valid if headless
	Port *corev1.ServicePort
	Rule proxy.PlannedRule
}

func (p *Path) String() string {
	if !p.At.IsValid() {
		return fmt.Sprintf("port %s", portName(p.Port))
	}
	return p.At.String() + "/" + string(protocolOf(p.Port))
}

func portName(p *corev1.ServicePort) string {
	if p.Name != "" {
		return p.Name
	}
	return strconv.Itoa(int(p.Port)) + "/" + string(protocolOf(p))
}

// Paths returns the addresses of a Service that the target names, or its cluster IPs if it names
// none. Also has the other addresses of the same ports. A Service without any address has one
// headless Path for each port and family.
func Paths(svc *corev1.Service, plan *proxy.Plan, here proxy.Here, t Target) (paths []Path, also []string, err error) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, nil, nil
	}
	if t.Port != "" && t.Name != "" {
		if err := hasPort(svc, t); err != nil {
			return nil, nil, err
		}
	}
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return headless(svc, t), nil, nil
	}
	// A number that is not a port may be a node port.
	ported := slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return named(&p, t) })
	for i := range plan.Rules {
		p, ok := pathOf(svc, &plan.Rules[i], here, t)
		if !ok {
			continue
		}
		meant := ported && p.Kind == ClusterIP || !ported && p.Kind == NodePort
		if t.Name == "" {
			meant = p.At.Addr() == t.Address && (t.Port == "" || int32(p.At.Port()) == t.number())
		}
		if meant {
			paths = append(paths, p)
		} else if t.Name != "" && p.At.IsValid() {
			also = append(also, fmt.Sprintf("%s (%s)", p.String(), strings.TrimPrefix(strings.TrimPrefix(p.Kind.words(), "the "), "an ")))
		}
	}
	return paths, also, nil
}

// hasPort returns an error if a Service does not have a port.
func hasPort(svc *corev1.Service, t Target) error {
	e := &NotFoundError{What: fmt.Sprintf("Service %s/%s has no port %s", svc.Namespace, svc.Name, portText(t))}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if named(p, t) || p.NodePort != 0 && p.NodePort == t.number() && (t.Protocol == "" || t.Protocol == protocolOf(p)) {
			return nil
		}
		text := strconv.Itoa(int(p.Port)) + "/" + string(protocolOf(p))
		if p.Name != "" {
			text = p.Name + " (" + text + ")"
		}
		if int(p.Port) == int(t.number()) || p.Name == t.Port {
			e.Near = append([]string{text}, e.Near...)
		} else {
			e.Near = append(e.Near, text)
		}
	}
	if len(e.Near) > nearby {
		e.Near = append(e.Near[:nearby], fmt.Sprintf("%d more", len(e.Near)-nearby))
	}
	return e
}

// named reports whether a target's port, if it has one, is that port.
func named(p *corev1.ServicePort, t Target) bool {
	return (t.Protocol == "" || t.Protocol == protocolOf(p)) && (t.Port == "" || t.Port == p.Name || t.number() == p.Port)
}

// pathOf returns the Path of a rule, if it is of the target's ports.
func pathOf(svc *corev1.Service, r *proxy.PlannedRule, here proxy.Here, t Target) (Path, bool) {
	i := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Name == r.Pool.Port && protocolOf(&p) == r.Protocol
	})
	if i < 0 {
		return Path{}, false
	}
	p := Path{At: netip.AddrPortFrom(r.Address, r.Port), Port: &svc.Spec.Ports[i], Rule: *r}
	address := r.Address.String()
	switch {
	case r.Address.IsUnspecified():
		p.Kind = NodePort
		as := here.Addresses
		if slices.Contains(as, t.Address) {
			as = []netip.Addr{t.Address}
		}
		p.At = netip.AddrPort{}
		for _, a := range as {
			if a.Is6() == r.Address.Is6() && !a.IsLoopback() && !p.At.IsValid() {
				p.At = netip.AddrPortFrom(a, r.Port)
			}
		}
	case r.Address.IsLoopback():
		p.Kind = NodePort
	case svc.Spec.ClusterIP == address || slices.Contains(svc.Spec.ClusterIPs, address):
		p.Kind = ClusterIP
	case slices.Contains(svc.Spec.ExternalIPs, address):
		p.Kind = ExternalIP
	default:
		p.Kind = LoadBalancer
	}
	if t.Name == "" {
		return p, t.Protocol == "" || t.Protocol == r.Protocol
	}
	return p, named(p.Port, t) || p.Port.NodePort != 0 && p.Port.NodePort == t.number()
}

func headless(svc *corev1.Service, t Target) (paths []Path) {
	families := svc.Spec.IPFamilies
	if len(families) == 0 {
		families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if !named(p, t) {
			continue
		}
		for _, f := range families {
			id := proxy.PortID{Service: types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}, Port: p.Name, Protocol: protocolOf(p), IPv6: f == corev1.IPv6Protocol}
			paths = append(paths, Path{Kind: Headless, Port: p, Rule: proxy.PlannedRule{Pool: proxy.PoolID{PortID: id}}})
		}
	}
	return paths
}
