package networking

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateServiceCIDR allows one range of each IP family. The only update that is allowed adds the second.
func validateServiceCIDR(c, old *networkingv1.ServiceCIDR) (errs field.ErrorList) {
	at := field.NewPath("spec", "cidrs")
	if old == nil {
		return validateRanges(c, at)
	}
	had, has := old.Spec.CIDRs, c.Spec.CIDRs
	added := len(had) == 1 && len(has) == 2
	if len(had) != len(has) && !added {
		return field.ErrorList{field.Invalid(at, has, apivalidation.FieldImmutableErrorMsg)}
	}
	for i, r := range had {
		if has[i] != r {
			errs = append(errs, field.Invalid(at.Index(i), has[i], apivalidation.FieldImmutableErrorMsg))
		}
	}
	if added {
		errs = append(errs, validateRanges(c, at)...)
	}
	return errs
}

func validateRanges(c *networkingv1.ServiceCIDR, at *field.Path) (errs field.ErrorList) {
	switch ranges := c.Spec.CIDRs; {
	case len(ranges) == 0:
		return field.ErrorList{field.Required(at, "at least one CIDR required")}
	case len(ranges) > 2:
		return field.ErrorList{field.Invalid(at, &c.Spec, "may only hold up to 2 values")}
	}
	var families []bool // whether IPv6
	for i, r := range c.Spec.CIDRs {
		errs = append(errs, validation.IsValidCIDR(at.Index(i), r)...)
		if p, err := netip.ParsePrefix(r); err == nil {
			families = append(families, p.Addr().Is6() && !p.Addr().Is4In6())
		}
	}
	if len(families) == 2 && families[0] == families[1] {
		errs = append(errs, field.Invalid(at, c.Spec.CIDRs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
	}
	return errs
}

func validateAddress(a, old *networkingv1.IPAddress) (errs field.ErrorList) {
	at, p := field.NewPath("spec", "parentRef"), a.Spec.ParentRef
	if p == nil {
		errs = append(errs, field.Required(at, ""))
	} else {
		if p.Group != "" {
			for _, fault := range validation.IsDNS1123Subdomain(p.Group) {
				errs = append(errs, field.Invalid(at.Child("group"), p.Group, fault))
			}
		}
		errs = append(errs, validateSegment(p.Resource, at.Child("resource"))...)
		errs = append(errs, validateSegment(p.Name, at.Child("name"))...)
		if p.Namespace != "" {
			errs = append(errs, validateSegment(p.Namespace, at.Child("namespace"))...)
		}
	}
	if old != nil && !equality.Semantic.DeepEqual(p, old.Spec.ParentRef) {
		errs = append(errs, field.Invalid(at, nil, apivalidation.FieldImmutableErrorMsg))
	}
	return errs
}

// validateSegment requires a part of a path.
func validateSegment(s string, at *field.Path) (errs field.ErrorList) {
	if s == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	for _, fault := range content.IsPathSegmentName(s) {
		errs = append(errs, field.Invalid(at, s, fault))
	}
	return errs
}
