package review

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateOwnAccess(r, _ *authorizationv1.SelfSubjectAccessReview) field.ErrorList {
	errs := validateQuestion(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return append(errs, validateMeta(r.ObjectMeta, &r.ObjectMeta, "must be empty")...)
}

func validateAccess(r, _ *authorizationv1.SubjectAccessReview) field.ErrorList {
	return append(validateSpec(&r.Spec), validateMeta(r.ObjectMeta, &r.ObjectMeta, "must be empty")...)
}

func validateLocalAccess(r, _ *authorizationv1.LocalSubjectAccessReview) field.ErrorList {
	meta := r.ObjectMeta
	meta.Namespace = ""
	errs := append(validateSpec(&r.Spec), validateMeta(meta, &r.ObjectMeta, "must be empty except for namespace")...)
	if a := r.Spec.ResourceAttributes; a != nil && a.Namespace != r.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("spec", "resourceAttributes", "namespace"), a.Namespace, "must match metadata.namespace"))
	}
	if a := r.Spec.NonResourceAttributes; a != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec", "nonResourceAttributes"), a, "disallowed on this kind of request"))
	}
	return errs
}

// validateMeta checks that a question has no metadata beside managed fields, in which clients record themselves.
func validateMeta(meta metav1.ObjectMeta, all *metav1.ObjectMeta, why string) field.ErrorList {
	meta.ManagedFields = nil
	if equality.Semantic.DeepEqual(metav1.ObjectMeta{}, meta) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), all, why)}
}

func validateRules(r, _ *authorizationv1.SelfSubjectRulesReview) field.ErrorList {
	if r.Spec.Namespace == "" {
		return field.ErrorList{field.Required(field.NewPath("spec", "namespace"), "rules are those of one namespace")}
	}
	return nil
}

func validateSpec(s *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateQuestion(s.ResourceAttributes, s.NonResourceAttributes)
	if s.User == "" && len(s.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), s.User, "at least one of user or group must be specified"))
	}
	return errs
}

// validateQuestion checks the subject of a review: a resource or a path.
func validateQuestion(resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) (errs field.ErrorList) {
	if (resource == nil) == (path == nil) {
		errs = append(errs, field.Invalid(field.NewPath("spec"), path, "exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if resource == nil {
		return errs
	}
	at := field.NewPath("spec", "resourceAttributes")
	if s := resource.FieldSelector; s != nil {
		errs = append(errs, validateSelector(s.RawSelector, len(s.Requirements), at.Child("fieldSelector"))...)
		opts := metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, r := range s.Requirements {
			errs = append(errs, metav1validation.ValidateFieldSelectorRequirement(r, opts, at.Child("fieldSelector", "requirements").Index(i))...)
		}
	}
	if s := resource.LabelSelector; s != nil {
		errs = append(errs, validateSelector(s.RawSelector, len(s.Requirements), at.Child("labelSelector"))...)
		opts := metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, r := range s.Requirements {
			errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(r, opts, at.Child("labelSelector", "requirements").Index(i))...)
		}
	}
	return errs
}

func validateSelector(raw string, requirements int, at *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(at.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(at.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", at))}
	}
	return nil
}
