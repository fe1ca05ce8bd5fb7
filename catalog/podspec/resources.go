package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isNative says whether a resource is one of Kubernetes' own: its name has no
// domain or theirs.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// IsExtended reports whether a resource is an extended resource, with the domain of a vendor.
func IsExtended(name corev1.ResourceName) bool {
	if isNative(name) || strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) {
		return false
	}
	return len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// CanShare reports whether nodes may promise more of a resource than they have.
func CanShare(name corev1.ResourceName) bool { return isNative(name) && !isHugePages(name) }

// ValidateResourceName checks the name of something that nodes have.
func ValidateResourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	var r report
	r.each(where{at}, string(name), validation.IsQualifiedName(string(name)))
	if len(r.errs) > 0 || strings.Contains(string(name), "/") || isHugePages(name) {
		return r.errs
	}
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceStorage, corev1.ResourcePods:
		return nil
	default:
		r.invalid(where{at}, string(name), "must be a standard resource type or fully qualified")
		return r.errs
	}
}

// ValidateQuantity checks that an amount of a resource makes sense: it is not
// negative, and whole where there are no halves.
func ValidateQuantity(name corev1.ResourceName, q resource.Quantity, at *field.Path) field.ErrorList {
	var r report
	if q.Sign() < 0 {
		r.invalid(where{at}, q.String(), apivalidation.IsNegativeErrorMsg)
	}
	if (IsExtended(name) || name == corev1.ResourcePods) && q.MilliValue()%1000 != 0 {
		r.invalid(where{at}, q.String(), "must be an integer")
	}
	return r.errs
}

func checkContainerResourceName(r *report, name corev1.ResourceName, at where) {
	r.add(ValidateContainerResourceName(name, at.path)...)
}

func (c *checker) checkResources(res *corev1.ResourceRequirements, at where) {
	limits, requests := at.child("limits"), at.child("requests")
	huge, ordinary := false, false
	note := func(name corev1.ResourceName) {
		huge = huge || isHugePages(name)
		ordinary = ordinary || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	for _, name := range slices.Sorted(maps.Keys(res.Limits)) {
		at := limits.key(string(name))
		checkContainerResourceName(&c.report, name, at)
		c.add(ValidateQuantity(name, res.Limits[name], at.path)...)
		note(name)
	}
	for _, name := range slices.Sorted(maps.Keys(res.Requests)) {
		at, q := requests.key(string(name)), res.Requests[name]
		checkContainerResourceName(&c.report, name, at)
		c.add(ValidateQuantity(name, q, at.path)...)
		note(name)
		limit, limited := res.Limits[name]
		switch {
		case limited && q.Cmp(limit) != 0 && !CanShare(name):
			c.invalid(requests, q.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
		case limited && q.Cmp(limit) > 0:
			c.invalid(requests, q.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
		case !limited && !CanShare(name):
			c.add(field.Required(limits.path, "Limit must be set for non overcommitable resources"))
		}
	}
	if huge && !ordinary && c.spec.Resources == nil {
		c.forbidden(at, "HugePages require cpu or memory")
	}
	c.checkClaims(res.Claims, at.child("claims"))
}

func (c *checker) checkClaims(claims []corev1.ResourceClaim, at where) {
	known := map[string]bool{}
	for _, claim := range c.spec.ResourceClaims {
		known[claim.Name] = true
	}
	seen := map[corev1.ResourceClaim]bool{}
	for i, claim := range claims {
		at := at.index(i)
		switch {
		case claim.Name == "":
			c.required(at.child("name"))
		case seen[claim]:
			c.add(field.Duplicate(at.path, claim.Name))
		case !known[claim.Name]:
			// What containers may use is the list of the pod.
			c.add(field.NotFound(at.child("name").path, claim.Name))
		}
		seen[claim] = true
	}
}

func (c *checker) checkResizePolicy(ctr *corev1.Container, at where) {
	seen := map[corev1.ResourceName]bool{}
	for i, p := range ctr.ResizePolicy {
		if seen[p.ResourceName] {
			c.add(field.Duplicate(at.index(i).path, p.ResourceName))
		}
		seen[p.ResourceName] = true
		requiredOf(&c.report, at, p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		requiredOf(&c.report, at, p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
		if c.spec.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired {
			c.invalid(at, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
		}
	}
}

// checkPodResources checks the resources of a pod as a whole, and its claims.
func (c *checker) checkPodResources(spec where) {
	s, at := c.spec, spec
	for _, name := range slices.Sorted(maps.Keys(s.Overhead)) {
		at := at.child("overhead").key(string(name))
		checkContainerResourceName(&c.report, name, at)
		c.add(ValidateQuantity(name, s.Overhead[name], at.path)...)
	}
	names := map[string]bool{}
	for i, claim := range s.ResourceClaims {
		at := at.child("resourceClaims").index(i)
		c.name(at.child("name"), claim.Name, validation.IsDNS1123Label)
		if names[claim.Name] {
			c.add(field.Duplicate(at.child("name").path, claim.Name))
		}
		names[claim.Name] = true
		switch {
		case claim.ResourceClaimName != nil && claim.ResourceClaimTemplateName != nil:
			c.invalid(at, claim, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
		case claim.ResourceClaimName == nil && claim.ResourceClaimTemplateName == nil:
			c.invalid(at, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
		}
	}
	if s.Resources == nil {
		return
	}
	at = at.child("resources")
	if len(s.Resources.Claims) > 0 {
		c.forbidden(at.child("claims"), "claims cannot be set for Resources at pod-level")
	}
	for _, list := range []struct {
		name string
		r    corev1.ResourceList
	}{{"limits", s.Resources.Limits}, {"requests", s.Resources.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(list.r)) {
			at, q := at.child(list.name).key(string(name)), list.r[name]
			if !forWholePod(name) {
				c.add(field.NotSupported(at.path, name, []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}))
			}
			c.add(ValidateQuantity(name, q, at.path)...)
		}
	}
	c.checkWholeAgainstParts(spec)
}

// checkWholeAgainstParts checks that a pod asks for no less than its containers
// ask for together, and that none of them may use more than the pod.
func (c *checker) checkWholeAgainstParts(spec where) {
	s, sum, at := c.spec, Requests(c.spec), spec.child("resources")
	for _, name := range slices.Sorted(maps.Keys(s.Resources.Requests)) {
		q := s.Resources.Requests[name]
		if limit, ok := s.Resources.Limits[name]; ok && q.Cmp(limit) > 0 {
			c.invalid(at.child("requests"), q.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
		}
		if parts, ok := sum[name]; ok && parts.Cmp(q) > 0 {
			c.invalid(at.child("requests").key(string(name)), q.String(), fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", parts.String()))
		}
	}
	for _, list := range []struct {
		name string
		of   []corev1.Container
	}{{"initContainers", s.InitContainers}, {"containers", s.Containers}} {
		for i := range list.of {
			for _, name := range slices.Sorted(maps.Keys(list.of[i].Resources.Limits)) {
				q, whole := list.of[i].Resources.Limits[name], s.Resources.Limits[name]
				if _, ok := s.Resources.Limits[name]; ok && q.Cmp(whole) > 0 {
					c.invalid(spec.child(list.name).index(i).child("resources", "limits"), q.String(),
						fmt.Sprintf("must be less than or equal to pod limits of %s", whole.String()))
				}
			}
		}
	}
}
