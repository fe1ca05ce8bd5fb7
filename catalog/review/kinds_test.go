package review_test

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/review"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, review.Kinds(), "testdata/accepted", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SelfSubjectReview",
		"SubjectAccessReview", "LocalSubjectAccessReview", "TokenReview")
}

func TestQuestionsThatAreNone(t *testing.T) {
	kinds := map[string]*catalog.Kind{}
	for _, k := range review.Kinds() {
		kinds[k.Kind] = k
	}
	access := &authorizationv1.SelfSubjectAccessReview{}
	if errs := kinds["SelfSubjectAccessReview"].Validate(t.Context(), access, nil); len(errs) != 1 {
		t.Errorf("a review of nothing: %v", errs)
	}
	access.Spec.ResourceAttributes, access.Spec.NonResourceAttributes = &authorizationv1.ResourceAttributes{}, &authorizationv1.NonResourceAttributes{}
	if errs := kinds["SelfSubjectAccessReview"].Validate(t.Context(), access, nil); len(errs) != 1 {
		t.Errorf("a review of two things: %v", errs)
	}
	if errs := kinds["SelfSubjectRulesReview"].Validate(t.Context(), &authorizationv1.SelfSubjectRulesReview{}, nil); len(errs) != 1 {
		t.Errorf("rules of no namespace: %v", errs)
	}
}

func TestQuestionsHaveNoMetadata(t *testing.T) {
	resource := &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "ship"}
	spec := authorizationv1.SubjectAccessReviewSpec{User: "jane", ResourceAttributes: resource}
	managed := metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}
	named := metav1.ObjectMeta{Name: "n"}
	kinds := map[string]*catalog.Kind{}
	for _, k := range review.Kinds() {
		kinds[k.Kind] = k
	}
	for _, make := range []func(metav1.ObjectMeta) (string, catalog.Object){
		func(m metav1.ObjectMeta) (string, catalog.Object) {
			return "must be empty", &authorizationv1.SubjectAccessReview{TypeMeta: metav1.TypeMeta{Kind: "SubjectAccessReview"}, ObjectMeta: m, Spec: spec}
		},
		func(m metav1.ObjectMeta) (string, catalog.Object) {
			return "must be empty", &authorizationv1.SelfSubjectAccessReview{TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectAccessReview"}, ObjectMeta: m, Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: resource}}
		},
		func(m metav1.ObjectMeta) (string, catalog.Object) {
			m.Namespace = "ship"
			return "must be empty except for namespace", &authorizationv1.LocalSubjectAccessReview{TypeMeta: metav1.TypeMeta{Kind: "LocalSubjectAccessReview"}, ObjectMeta: m, Spec: spec}
		},
	} {
		_, good := make(managed)
		kind := good.GetObjectKind().GroupVersionKind().Kind
		if errs := kinds[kind].Validate(t.Context(), good, nil); len(errs) > 0 {
			t.Errorf("%s: %v", kind, errs)
		}
		why, bad := make(named)
		if errs := kinds[kind].Validate(t.Context(), bad, nil); len(errs) != 1 || errs[0].Field != "metadata" || errs[0].Detail != why {
			t.Errorf("%s with a name: %v, want %q", kind, errs, why)
		}
	}
}
