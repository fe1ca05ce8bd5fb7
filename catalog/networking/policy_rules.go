package networking

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/sampan-io/sampan/internal/podfeature"
)

func defaultPolicy(p *networkingv1.NetworkPolicy) {
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	for _, d := range directions(p) {
		for i := range d.ports {
			if d.ports[i].Protocol == nil {
				d.ports[i].Protocol = new(corev1.ProtocolTCP)
			}
		}
	}
}

// A direction is a rule of a policy, of either direction, and where it is.
type direction struct {
	ports            []networkingv1.NetworkPolicyPort
	peers            []networkingv1.NetworkPolicyPeer
	portsAt, peersAt *field.Path
}

// directions returns the rules of a policy, which share their lists with it.
func directions(p *networkingv1.NetworkPolicy) (all []direction) {
	spec := field.NewPath("spec")
	for i := range p.Spec.Ingress {
		r, at := &p.Spec.Ingress[i], spec.Child("ingress").Index(i)
		all = append(all, direction{r.Ports, r.From, at.Child("ports"), at.Child("from")})
	}
	for i := range p.Spec.Egress {
		r, at := &p.Spec.Egress[i], spec.Child("egress").Index(i)
		all = append(all, direction{r.Ports, r.To, at.Child("ports"), at.Child("to")})
	}
	return all
}

// blocks returns the address ranges of a policy, as written.
func blocks(p *networkingv1.NetworkPolicy) (all []string) {
	for _, d := range directions(p) {
		for i := range d.peers {
			if b := d.peers[i].IPBlock; b != nil {
				all = append(append(all, b.CIDR), b.Except...)
			}
		}
	}
	return all
}

// policyWarnings warns that a new policy has no effect, and of address ranges that some readers misunderstand.
func policyWarnings(p, old *networkingv1.NetworkPolicy) (warnings []string) {
	if old == nil {
		warnings = append(warnings, podfeature.NoEffect("NetworkPolicy", p.Name, "spec", "no traffic is refused"))
	}
	for _, d := range directions(p) {
		for i := range d.peers {
			b, at := d.peers[i].IPBlock, d.peersAt.Index(i).Child("ipBlock")
			if b == nil {
				continue
			}
			warnings = append(warnings, validation.GetWarningsForCIDR(at.Child("cidr"), b.CIDR)...)
			for k, except := range b.Except {
				warnings = append(warnings, validation.GetWarningsForCIDR(at.Child("except").Index(k), except)...)
			}
		}
	}
	return warnings
}

func validatePolicy(p, old *networkingv1.NetworkPolicy) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	var before []string
	opts := metav1validation.LabelSelectorValidationOptions{}
	if old != nil {
		before = blocks(old) // stored values stay allowed
		opts.AllowInvalidLabelValueInSelector = len(metav1validation.ValidateLabelSelector(&old.Spec.PodSelector, opts, nil)) > 0
	}
	selector := func(s *metav1.LabelSelector, at *field.Path) {
		errs = append(errs, metav1validation.ValidateLabelSelector(s, opts, at)...)
	}
	selector(&p.Spec.PodSelector, spec.Child("podSelector"))
	for _, d := range directions(p) {
		for i := range d.ports {
			errs = append(errs, validatePolicyPort(&d.ports[i], d.portsAt.Index(i))...)
		}
		for i := range d.peers {
			peer, at := &d.peers[i], d.peersAt.Index(i)
			if peer.PodSelector != nil {
				selector(peer.PodSelector, at.Child("podSelector"))
			}
			if peer.NamespaceSelector != nil {
				selector(peer.NamespaceSelector, at.Child("namespaceSelector"))
			}
			selects := peer.PodSelector != nil || peer.NamespaceSelector != nil
			if peer.IPBlock != nil {
				errs = append(errs, validateBlock(peer.IPBlock, before, at.Child("ipBlock"))...)
				if selects {
					errs = append(errs, field.Forbidden(at, "may not specify both ipBlock and another peer"))
				}
			} else if !selects {
				errs = append(errs, field.Required(at, "must specify a peer"))
			}
		}
	}
	types, known := spec.Child("policyTypes"), []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	if len(p.Spec.PolicyTypes) > len(known) {
		return append(errs, field.Invalid(types, &p.Spec.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, t := range p.Spec.PolicyTypes {
		if t != known[0] && t != known[1] {
			errs = append(errs, field.NotSupported(types.Index(i), t, known))
		}
	}
	return errs
}

func validatePolicyPort(p *networkingv1.NetworkPolicyPort, at *field.Path) (errs field.ErrorList) {
	if known := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}; p.Protocol != nil && *p.Protocol != known[0] && *p.Protocol != known[1] && *p.Protocol != known[2] {
		errs = append(errs, field.NotSupported(at.Child("protocol"), *p.Protocol, known))
	}
	end := func(why string) {
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(at.Child("endPort"), *p.EndPort, why))
		}
	}
	switch {
	case p.Port == nil:
		end("may not be specified when `port` is not specified")
	case p.Port.Type == intstr.Int:
		for _, fault := range validation.IsValidPortNum(int(p.Port.IntVal)) {
			errs = append(errs, field.Invalid(at.Child("port"), p.Port.IntVal, fault))
		}
		if p.EndPort == nil {
			break
		}
		if *p.EndPort < p.Port.IntVal {
			end("must be greater than or equal to `port`")
		}
		for _, fault := range validation.IsValidPortNum(int(*p.EndPort)) {
			end(fault)
		}
	case p.Port.Type != intstr.String:
		errs = append(errs, field.Invalid(at.Child("port"), *p.Port, fmt.Sprintf("unknown type: %v", p.Port.Type)))
	default:
		end("may not be specified when `port` is non-numeric")
		for _, fault := range validation.IsValidPortName(p.Port.StrVal) {
			errs = append(errs, field.Invalid(at.Child("port"), p.Port.StrVal, fault))
		}
	}
	return errs
}

func validateBlock(b *networkingv1.IPBlock, before []string, at *field.Path) field.ErrorList {
	if b.CIDR == "" {
		return field.ErrorList{field.Required(at.Child("cidr"), "")}
	}
	errs := validation.IsValidCIDRForLegacyField(at.Child("cidr"), b.CIDR, true, before)
	_, whole, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return errs // said above
	}
	for i, s := range b.Except {
		at := at.Child("except").Index(i)
		errs = append(errs, validation.IsValidCIDRForLegacyField(at, s, true, before)...)
		_, part, err := netutils.ParseCIDRSloppy(s)
		if err != nil {
			continue
		}
		wide, _ := whole.Mask.Size()
		if narrow, _ := part.Mask.Size(); !whole.Contains(part.IP) || wide >= narrow {
			errs = append(errs, field.Invalid(at, s, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}
