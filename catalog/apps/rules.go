package apps

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateSelector checks a selector, without which a controller would take all pods or
// none, and that it selects the template's pods. Kind is as the sentence has it.
func validateSelector(s *metav1.LabelSelector, t *corev1.PodTemplateSpec, kind string, spec *field.Path) field.ErrorList {
	at := spec.Child("selector")
	if s == nil { // it selects nothing
		return field.ErrorList{
			field.Required(at, ""),
			field.Invalid(spec.Child("template", "metadata", "labels"), t.Labels, "`selector` does not match template `labels`"),
		}
	}
	errs := metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)
	if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(at, s, "empty selector is invalid for "+kind))
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	switch {
	case err != nil:
		errs = append(errs, field.Invalid(at, s, "invalid label selector"))
	case !selector.Empty() && !selector.Matches(labels.Set(t.Labels)):
		errs = append(errs, field.Invalid(spec.Child("template", "metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
	}
	return errs
}

// validateShare checks a number of pods or a percentage of them.
func validateShare(v *intstr.IntOrString, at *field.Path) (errs field.ErrorList) {
	switch {
	case v == nil:
	case v.Type == intstr.String:
		for _, fault := range validation.IsValidPercent(v.StrVal) {
			errs = append(errs, field.Invalid(at, *v, fault))
		}
	case v.Type == intstr.Int:
		errs = apivalidation.ValidateNonnegativeField(int64(v.IntVal), at)
	default:
		errs = append(errs, field.Invalid(at, *v, "must be an integer or percentage (e.g '5%%')"))
	}
	return errs
}

// validateAtMostAll refuses more than 100 %.
func validateAtMostAll(v *intstr.IntOrString, at *field.Path) field.ErrorList {
	if percent, ok := percentOf(v); ok && percent > 100 {
		return field.ErrorList{field.Invalid(at, *v, "must not be greater than 100%")}
	}
	return nil
}

func percentOf(v *intstr.IntOrString) (int, bool) {
	if v == nil || v.Type != intstr.String || len(validation.IsValidPercent(v.StrVal)) > 0 {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	return n, err == nil
}

// isNothing says that a share is 0 or 0 %.
func isNothing(v *intstr.IntOrString) bool {
	if v == nil {
		return true
	}
	if v.Type == intstr.String {
		percent, ok := percentOf(v)
		return !ok || percent == 0
	}
	return v.IntVal == 0
}
