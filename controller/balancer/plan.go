package balancer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/names"
)

// Class is the loadBalancerClass of services that want an address of the pool and of no other controller.
const Class = names.Pool

const (
	// finalizer says that there is something to be cleaned up; clouds use it, too.
	finalizer = "service.kubernetes.io/load-balancer-cleanup"

	// mark is the annotation that says that it is ours.
	mark     = names.LoadBalancer
	markedBy = "pool"
)

func balanced(svc *corev1.Service) bool { return svc.Spec.Type == corev1.ServiceTypeLoadBalancer }

// chosen reports whether a service asks for the pool by name.
func chosen(svc *corev1.Service) bool {
	return balanced(svc) && svc.Spec.LoadBalancerClass != nil && *svc.Spec.LoadBalancerClass == Class
}

// asks reports whether a service wants an address from this controller.
func asks(svc *corev1.Service) bool {
	return balanced(svc) && svc.DeletionTimestamp == nil && (svc.Spec.LoadBalancerClass == nil || chosen(svc))
}

func marked(svc *corev1.Service) bool { return svc.Annotations[mark] == markedBy }

// given returns the addresses that stand in a service's status.
func given(svc *corev1.Service) (all []netip.Addr) {
	if !balanced(svc) {
		return nil
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// A book is the owner of each address.
type book struct {
	pool Pool

	// holder returns the service that an address belongs to, if it is one's.
	holder func(netip.Addr) (controller.Key, bool)

	// node reports whether an address is that of a node; nil is none. Service proxies refuse it.
	node func(netip.Addr) bool

	// full is where the search for a free address begins: those before it are taken, or are of nodes.
	full map[corev1.IPFamily]netip.Addr
}

// plan returns the addresses that a service is to have, at most one of each of its
// families, and the refused parts of its request, in words for an event.
func (b *book) plan(svc *corev1.Service) (addresses []netip.Addr, trouble string) {
	key := controller.KeyOf(svc)
	var troubles []string
	asked, err := netip.ParseAddr(svc.Spec.LoadBalancerIP)
	families := familiesFor(svc)
	switch {
	case svc.Spec.LoadBalancerIP == "":
	case err != nil:
		troubles = append(troubles, fmt.Sprintf("spec.loadBalancerIP %q is not an IP address", svc.Spec.LoadBalancerIP))
	case !slices.Contains(families, familyOf(asked)):
		troubles = append(troubles, fmt.Sprintf("spec.loadBalancerIP %s is not of its IP family (%s)", asked, families[0]))
	}
	refused := len(troubles) > 0 // the request cannot be met: nothing else is given
	had := given(svc)
	for _, family := range families {
		kept, keeps := b.kept(key, had, family)
		if svc.Spec.LoadBalancerIP != "" && err == nil && familyOf(asked) == family {
			why := b.refusal(key, asked)
			if why == "" {
				addresses = append(addresses, asked)
				continue
			}
			troubles = append(troubles, fmt.Sprintf("spec.loadBalancerIP %s %s", asked, why))
			if keeps {
				addresses = append(addresses, kept) // better than none
			}
			continue
		}
		if keeps {
			addresses = append(addresses, kept)
			continue
		}
		if refused {
			continue
		}
		a, why := b.next(family)
		if why != "" {
			troubles = append(troubles, why)
			continue
		}
		addresses = append(addresses, a)
	}
	// One of two families is enough for a service that does not require both.
	both := svc.Spec.IPFamilyPolicy != nil && *svc.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack
	if len(addresses) > 0 && !both && svc.Spec.LoadBalancerIP == "" {
		troubles = nil
	}
	return addresses, strings.Join(troubles, "; ")
}

// kept returns the address of a family that a service has already.
func (b *book) kept(key controller.Key, had []netip.Addr, family corev1.IPFamily) (netip.Addr, bool) {
	for _, a := range had {
		if familyOf(a) != family || !b.pool.Holds(a) || b.ofNode(a) {
			continue
		}
		if by, _ := b.holder(a); by == key {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// refusal says why a service cannot have the address that it asks for, or "".
func (b *book) refusal(key controller.Key, a netip.Addr) string {
	if !b.pool.Holds(a) {
		return "is not in the pool of load balancer addresses (" + b.pool.String() + ")"
	}
	if b.ofNode(a) {
		return "is that of a node"
	}
	if by, taken := b.holder(a); taken && by != key {
		return "is that of service " + by.String()
	}
	return ""
}

func (b *book) ofNode(a netip.Addr) bool { return b.node != nil && b.node(a) }

// next returns a free address, or why there is none.
func (b *book) next(family corev1.IPFamily) (netip.Addr, string) {
	for a := range b.pool.from(family, b.full[family]) {
		b.full[family] = a
		if _, taken := b.holder(a); !taken && !b.ofNode(a) {
			return a, ""
		}
	}
	switch n := b.pool.size(family); n {
	case 0:
		return netip.Addr{}, fmt.Sprintf("the pool of load balancer addresses (%s) has no %s addresses", b.pool, family)
	case 1:
		return netip.Addr{}, fmt.Sprintf("the only %s address of the pool of load balancer addresses (%s) is in use", family, b.pool)
	default:
		return netip.Addr{}, fmt.Sprintf("all %d %s addresses of the pool of load balancer addresses (%s) are in use", n, family, b.pool)
	}
}

// familiesFor returns the families of a service's addresses.
func familiesFor(svc *corev1.Service) []corev1.IPFamily {
	if len(svc.Spec.IPFamilies) > 0 {
		return svc.Spec.IPFamilies
	}
	if a, err := netip.ParseAddr(svc.Spec.ClusterIP); err == nil {
		return []corev1.IPFamily{familyOf(a)}
	}
	return []corev1.IPFamily{corev1.IPv4Protocol}
}

// statusOf returns the status of a service with these addresses. What is said about one
// that it had before stays.
func statusOf(svc *corev1.Service, addresses []netip.Addr) corev1.LoadBalancerStatus {
	var s corev1.LoadBalancerStatus
	for _, a := range addresses {
		entry := corev1.LoadBalancerIngress{IP: a.String(), IPMode: new(corev1.LoadBalancerIPModeVIP)}
		for _, in := range svc.Status.LoadBalancer.Ingress {
			if in.IP == entry.IP && in.IPMode != nil {
				entry = in
			}
		}
		s.Ingress = append(s.Ingress, entry)
	}
	return s
}

func words(addresses []netip.Addr) string {
	all := make([]string, len(addresses))
	for i, a := range addresses {
		all[i] = a.String()
	}
	return strings.Join(all, " and ")
}
