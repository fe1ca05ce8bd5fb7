package review_test

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/catalogtest"
	"github.com/sampan-io/sampan/catalog/review"
)

func TestKindsKeepTheLaws(t *testing.T) {
	catalogtest.Kinds(t, review.Kinds(), "testdata/accepted", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SelfSubjectReview")
}

func TestQuestionsThatAreNone(t *testing.T) {
	kinds := map[string]*catalog.Kind{}
	for _, k := range review.Kinds() {
		kinds[k.Kind] = k
	}
	access := &authorizationv1.SelfSubjectAccessReview{}
	if errs := kinds["SelfSubjectAccessReview"].Validate(access, nil); len(errs) != 1 {
		t.Errorf("a review of nothing: %v", errs)
	}
	access.Spec.ResourceAttributes, access.Spec.NonResourceAttributes = &authorizationv1.ResourceAttributes{}, &authorizationv1.NonResourceAttributes{}
	if errs := kinds["SelfSubjectAccessReview"].Validate(access, nil); len(errs) != 1 {
		t.Errorf("a review of two things: %v", errs)
	}
	if errs := kinds["SelfSubjectRulesReview"].Validate(&authorizationv1.SelfSubjectRulesReview{}, nil); len(errs) != 1 {
		t.Errorf("rules of no namespace: %v", errs)
	}
}
