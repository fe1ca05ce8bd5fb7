package trace

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/sorting"
)

// NotFoundError is returned if no Service has the target.
type NotFoundError struct {
	What string   // the object that was not found, as a sentence
	Near []string // names that may be meant instead
}

func (e *NotFoundError) Error() string {
	if len(e.Near) == 0 {
		return e.What
	}
	return e.What + "; the nearest: " + strings.Join(e.Near, ", ")
}

// nearby is the number of suggestions.
const nearby = 3

// Find returns the Service that has an address and port: of several, the oldest one, which gets it.
// It also returns the others.
func Find(t Target, all []*corev1.Service, nodes []*corev1.Node, pods []*corev1.Pod) (svc *corev1.Service, others []*corev1.Service, err error) {
	var have []*corev1.Service
	for _, s := range all {
		if hasAddress(s, t, nodes) {
			have = append(have, s)
		}
	}
	if len(have) == 0 {
		return nil, nil, notFound(t, all, nodes, pods)
	}
	slices.SortFunc(have, func(a, b *corev1.Service) int { // as frontends are assigned
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	return have[0], have[1:], nil
}

func hasAddress(s *corev1.Service, t Target, nodes []*corev1.Node) bool {
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if t.Protocol != "" && t.Protocol != protocolOf(p) {
			continue
		}
		if (t.Port == "" || t.number() == p.Port) && slices.Contains(addressesOf(s), t.Address) ||
			t.Port != "" && p.NodePort != 0 && t.number() == p.NodePort && (isNode(t.Address, nodes) || t.Address.IsLoopback()) {
			return true
		}
	}
	return false
}

func protocolOf(p *corev1.ServicePort) corev1.Protocol {
	return cmp.Or(p.Protocol, corev1.ProtocolTCP)
}

// addressesOf returns the addresses of a Service at which its ports are.
func addressesOf(s *corev1.Service) []netip.Addr {
	var as []netip.Addr
	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil {
			as = append(as, a)
		}
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	for _, ip := range append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...) {
		add(ip)
	}
	for _, ip := range s.Spec.ExternalIPs {
		add(ip)
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		add(in.IP)
	}
	return as
}

// NodeOf returns the node that has an address, or nil.
func NodeOf(a netip.Addr, nodes []*corev1.Node) *corev1.Node {
	for _, n := range nodes {
		for _, at := range n.Status.Addresses {
			if b, err := netip.ParseAddr(at.Address); err == nil && a == b {
				return n
			}
		}
	}
	return nil
}

func isNode(a netip.Addr, nodes []*corev1.Node) bool { return NodeOf(a, nodes) != nil }

// notFound returns an error that no Service has an address, with similar ones as suggestions.
func notFound(t Target, all []*corev1.Service, nodes []*corev1.Node, pods []*corev1.Pod) error {
	e := &NotFoundError{What: fmt.Sprintf("no Service has the address %s", t)}
	for _, p := range pods {
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil && a == t.Address && !p.Spec.HostNetwork {
				e.What += fmt.Sprintf(": it is that of pod %s/%s, which clients reach without any", p.Namespace, p.Name)
				return e
			}
		}
	}
	if n := NodeOf(t.Address, nodes); n != nil {
		e.What = fmt.Sprintf("no Service has the node port %s, at node %s", portText(t), n.Name)
		e.Near = nearPorts(t, all)
		return e
	}
	if t.Address.IsLoopback() {
		e.Near = nearPorts(t, all)
		return e
	}
	type near struct {
		text     string
		distance int
	}
	var ns []near
	for _, s := range all {
		for i := range s.Spec.Ports {
			p := &s.Spec.Ports[i]
			for _, a := range addressesOf(s) {
				switch text := fmt.Sprintf("%s (%s/%s)", portAt(a, p.Port, protocolOf(p)), s.Namespace, s.Name); {
				case a == t.Address:
					ns = append(ns, near{text, -1})
				case a != t.Address && a.BitLen() == t.Address.BitLen() && (t.Port == "" || p.Port == t.number()):
					ns = append(ns, near{text, apart(a, t.Address)})
				}
			}
		}
	}
	sorting.Slice(ns, func(a, b near) int { return cmp.Or(a.distance-b.distance, strings.Compare(a.text, b.text)) })
	for _, n := range ns {
		if ns[0].distance < 0 && n.distance >= 0 {
			break // one with the exact address is meant
		}
		if !slices.Contains(e.Near, n.text) && len(e.Near) < nearby {
			e.Near = append(e.Near, n.text)
		}
	}
	return e
}

func nearPorts(t Target, all []*corev1.Service) []string {
	type near struct {
		text     string
		distance int32
	}
	var ns []near
	for _, s := range all {
		for i := range s.Spec.Ports {
			if p := &s.Spec.Ports[i]; p.NodePort != 0 {
				ns = append(ns, near{fmt.Sprintf("%d/%s (%s/%s)", p.NodePort, protocolOf(p), s.Namespace, s.Name), max(p.NodePort-t.number(), t.number()-p.NodePort)})
			}
		}
	}
	sorting.Slice(ns, func(a, b near) int { return cmp.Or(int(a.distance-b.distance), strings.Compare(a.text, b.text)) })
	var texts []string
	for _, n := range ns[:min(len(ns), nearby)] {
		texts = append(texts, n.text)
	}
	return texts
}

// apart returns the number of bits from the first one on in which two addresses of one family
// differ.
func apart(a, b netip.Addr) int {
	bits := a.BitLen()
	for n := bits; n > 0; n-- {
		if p, err := a.Prefix(n); err == nil && p.Contains(b) {
			return bits - n
		}
	}
	return bits
}

func portText(t Target) string {
	if t.Protocol == "" {
		return cmp.Or(t.Port, "(none)")
	}
	return t.Port + "/" + string(t.Protocol)
}

func portAt(a netip.Addr, port int32, protocol corev1.Protocol) string {
	return netip.AddrPortFrom(a, uint16(port)).String() + "/" + string(protocol)
}
