package review

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

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
			Unstored:         catalog.Unstored{Answer: catalog.OwnAccess},
			New:              func() catalog.Object { return &authorizationv1.SelfSubjectAccessReview{} },
			Validate:         catalog.Validate(validateOwnAccess),
		},
		{
			GroupVersionKind: authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectRulesReview"),
			Resource:         "selfsubjectrulesreviews",
			Singular:         "selfsubjectrulesreview",
			Verbs:            []string{"create"},
			Unstored:         catalog.Unstored{Answer: catalog.OwnRules},
			New:              func() catalog.Object { return &authorizationv1.SelfSubjectRulesReview{} },
			Validate:         catalog.Validate(validateRules),
		},
		{
			GroupVersionKind: authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"),
			Resource:         "selfsubjectreviews",
			Singular:         "selfsubjectreview",
			Verbs:            []string{"create"},
			Unstored:         catalog.Unstored{Answer: catalog.OwnIdentity},
			New:              func() catalog.Object { return &authenticationv1.SelfSubjectReview{} },
		},
		{
			GroupVersionKind: authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"),
			Resource:         "subjectaccessreviews",
			Singular:         "subjectaccessreview",
			Verbs:            []string{"create"},
			Unstored:         catalog.Unstored{Answer: catalog.Access},
			New:              func() catalog.Object { return &authorizationv1.SubjectAccessReview{} },
			Validate:         catalog.Validate(validateAccess),
		},
		{
			GroupVersionKind: authorizationv1.SchemeGroupVersion.WithKind("LocalSubjectAccessReview"),
			Resource:         "localsubjectaccessreviews",
			Singular:         "localsubjectaccessreview",
			Namespaced:       true,
			Verbs:            []string{"create"},
			Unstored:         catalog.Unstored{Answer: catalog.LocalAccess},
			New:              func() catalog.Object { return &authorizationv1.LocalSubjectAccessReview{} },
			Validate:         catalog.Validate(validateLocalAccess),
		},
		{
			GroupVersionKind: authenticationv1.SchemeGroupVersion.WithKind("TokenReview"),
			Resource:         "tokenreviews",
			Singular:         "tokenreview",
			Verbs:            []string{"create"},
			Unstored:         catalog.Unstored{Answer: catalog.TokenIdentity},
			New:              func() catalog.Object { return &authenticationv1.TokenReview{} },
		},
	}
}
