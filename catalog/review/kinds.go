package review

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

// Kinds returns the kinds of this package.
func Kinds() []*catalog.Kind {
	return []*catalog.Kind{
		{
			GroupVersionKind: authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"),
			Resource:         "selfsubjectaccessreviews",
			Singular:         "selfsubjectaccessreview",
			Verbs:            []string{"create"},
			Answer:           catalog.OwnAccess,
			New:              func() catalog.Object { return &authorizationv1.SelfSubjectAccessReview{} },
			Validate:         catalog.Validate(validateAccess),
		},
		{
			GroupVersionKind: authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectRulesReview"),
			Resource:         "selfsubjectrulesreviews",
			Singular:         "selfsubjectrulesreview",
			Verbs:            []string{"create"},
			Answer:           catalog.OwnRules,
			New:              func() catalog.Object { return &authorizationv1.SelfSubjectRulesReview{} },
			Validate:         catalog.Validate(validateRules),
		},
		{
			GroupVersionKind: authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"),
			Resource:         "selfsubjectreviews",
			Singular:         "selfsubjectreview",
			Verbs:            []string{"create"},
			Answer:           catalog.OwnIdentity,
			New:              func() catalog.Object { return &authenticationv1.SelfSubjectReview{} },
		},
	}
}

func validateAccess(r, _ *authorizationv1.SelfSubjectAccessReview) field.ErrorList {
	spec := field.NewPath("spec")
	resource, path := r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes
	switch {
	case resource != nil && path != nil:
		return field.ErrorList{field.Invalid(spec.Child("nonResourceAttributes"), path, "cannot be specified in combination with resourceAttributes")}
	case resource == nil && path == nil:
		return field.ErrorList{field.Invalid(spec.Child("resourceAttributes"), resource, "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	}
	return nil
}

func validateRules(r, _ *authorizationv1.SelfSubjectRulesReview) field.ErrorList {
	if r.Spec.Namespace == "" {
		return field.ErrorList{field.Required(field.NewPath("spec", "namespace"), "rules are those of one namespace")}
	}
	return nil
}
