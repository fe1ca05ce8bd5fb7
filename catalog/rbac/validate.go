package rbac

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateName returns the faults of the name of an object of the four kinds, which may be
// anything that fits into a path: "system::leader-locking-kube-scheduler".
func ValidateName(name string, _ bool) []string { return content.IsPathSegmentName(name) }

// ValidateRole checks a role.
func ValidateRole(r, _ *rbacv1.Role) field.ErrorList { return validateRules(r.Rules, true) }

// ValidateClusterRole checks a cluster role. An update may keep a selector that was accepted by an
// earlier version, although its value of a label is invalid.
func ValidateClusterRole(r, old *rbacv1.ClusterRole) field.ErrorList {
	errs := validateRules(r.Rules, false)
	if r.AggregationRule == nil {
		return errs
	}
	path := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		errs = append(errs, field.Required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	opts := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: old != nil && invalidSelectors(old)}
	for i := range r.AggregationRule.ClusterRoleSelectors {
		s := &r.AggregationRule.ClusterRoleSelectors[i]
		errs = append(errs, metav1validation.ValidateLabelSelector(s, opts, path.Index(i))...)
		if selector, err := metav1.LabelSelectorAsSelector(s); err != nil {
			errs = append(errs, field.Invalid(path.Index(i), selector, "invalid label selector."))
		}
	}
	return errs
}

func invalidSelectors(r *rbacv1.ClusterRole) bool {
	if r.AggregationRule == nil {
		return false
	}
	for i := range r.AggregationRule.ClusterRoleSelectors {
		if len(metav1validation.ValidateLabelSelector(&r.AggregationRule.ClusterRoleSelectors[i], metav1validation.LabelSelectorValidationOptions{}, nil)) > 0 {
			return true
		}
	}
	return false
}

func validateRules(rules []rbacv1.PolicyRule, namespaced bool) (errs field.ErrorList) {
	for i := range rules {
		errs = append(errs, validateRule(&rules[i], namespaced, field.NewPath("rules").Index(i))...)
	}
	return errs
}

func validateRule(r *rbacv1.PolicyRule, namespaced bool, at *field.Path) (errs field.ErrorList) {
	if len(r.Verbs) == 0 {
		errs = append(errs, field.Required(at.Child("verbs"), ""))
	}
	if len(r.NonResourceURLs) > 0 {
		urls := at.Child("nonResourceURLs")
		if namespaced {
			errs = append(errs, field.Invalid(urls, r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
		}
		if len(r.APIGroups)+len(r.Resources)+len(r.ResourceNames) > 0 {
			errs = append(errs, field.Invalid(urls, r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
		}
		return errs
	}
	if len(r.APIGroups) == 0 {
		errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	if len(r.Resources) == 0 {
		errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
	}
	return errs
}

// DefaultRoleBinding sets the API groups of the role and of the subjects.
func DefaultRoleBinding(b *rbacv1.RoleBinding) { setGroups(&b.RoleRef, b.Subjects) }

// DefaultClusterRoleBinding sets the API groups of the role and of the subjects.
func DefaultClusterRoleBinding(b *rbacv1.ClusterRoleBinding) { setGroups(&b.RoleRef, b.Subjects) }

func setGroups(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		if s := &subjects[i]; s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

// ValidateRoleBinding checks a role binding. Its role cannot change.
func ValidateRoleBinding(b, old *rbacv1.RoleBinding) field.ErrorList {
	errs := validateBinding(b.RoleRef, b.Subjects, true, "Role", "ClusterRole")
	if old != nil {
		errs = append(errs, sameRole(b.RoleRef, old.RoleRef)...)
	}
	return errs
}

// ValidateClusterRoleBinding checks a cluster role binding. Its role cannot change.
func ValidateClusterRoleBinding(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
	errs := validateBinding(b.RoleRef, b.Subjects, false, "ClusterRole")
	if old != nil {
		errs = append(errs, sameRole(b.RoleRef, old.RoleRef)...)
	}
	return errs
}

// shownRef is a rbacv1.RoleRef without the tags for JSON: Kubernetes shows its internal type in errors.
type shownRef struct{ APIGroup, Kind, Name string }

func sameRole(ref, old rbacv1.RoleRef) field.ErrorList {
	return validation.ValidateImmutableField(shownRef(ref), shownRef(old), field.NewPath("roleRef"))
}

func validateBinding(ref rbacv1.RoleRef, subjects []rbacv1.Subject, namespaced bool, kinds ...string) (errs field.ErrorList) {
	at := field.NewPath("roleRef")
	errs = append(errs, oneOf(at.Child("apiGroup"), ref.APIGroup, rbacv1.GroupName)...)
	errs = append(errs, oneOf(at.Child("kind"), ref.Kind, kinds...)...)
	if ref.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		errs = append(errs, invalid(at.Child("name"), ref.Name, ValidateName(ref.Name, false))...)
	}
	for i, s := range subjects {
		errs = append(errs, validateSubject(s, namespaced, field.NewPath("subjects").Index(i))...)
	}
	return errs
}

func validateSubject(s rbacv1.Subject, namespaced bool, at *field.Path) (errs field.ErrorList) {
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			errs = append(errs, invalid(at.Child("name"), s.Name, validation.ValidateServiceAccountName(s.Name, false))...)
		}
		errs = append(errs, oneOf(at.Child("apiGroup"), s.APIGroup, "")...)
		if !namespaced && s.Namespace == "" {
			errs = append(errs, field.Required(at.Child("namespace"), ""))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		errs = append(errs, oneOf(at.Child("apiGroup"), s.APIGroup, rbacv1.GroupName)...)
	default:
		errs = append(errs, oneOf(at.Child("kind"), s.Kind, rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind)...)
	}
	return errs
}

func oneOf(at *field.Path, value string, accepted ...string) field.ErrorList {
	if slices.Contains(accepted, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, accepted)}
}

func invalid(at *field.Path, value string, faults []string) (errs field.ErrorList) {
	for _, fault := range faults {
		errs = append(errs, field.Invalid(at, value, fault))
	}
	return errs
}
