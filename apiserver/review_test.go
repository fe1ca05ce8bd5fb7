package apiserver_test

import (
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
)

const (
	reviews  = "/apis/authorization.k8s.io/v1/"
	whoAmI   = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	mayI     = reviews + "selfsubjectaccessreviews"
	whatMayI = reviews + "selfsubjectrulesreviews"
)

// Every authenticated user may review their own rights, and a review leaves no trace.
func TestQuestionsAboutOneself(t *testing.T) {
	f := serveFull(t)
	before := f.store.Revision()
	for _, tt := range []struct {
		user    string
		ask     any
		allowed bool
	}{
		{"boss", &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}, true},
		{"boss", &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}, true},
		{"mate", &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: "default"}, false},
		{"mate", &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/version"}, true},
		{"mate", &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}, false},
		{"system:node:a", &authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes", Name: "a"}, true},
		{"system:node:a", &authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes", Name: "b"}, true}, // its service proxy needs them
		{"system:node:a", &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "pods", Namespace: "default", Name: "p"}, false},
		{"system:node:a", &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}, false},
		{"system:node:a", &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", FieldSelector: &authorizationv1.FieldSelectorAttributes{
			Requirements: []metav1.FieldSelectorRequirement{{Key: "spec.nodeName", Operator: metav1.FieldSelectorOpIn, Values: []string{"a"}}},
		}}, true},
		{"system:node:a", &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: "spec.nodeName=b"}}, false},
	} {
		question := authorizationv1.SelfSubjectAccessReview{}
		switch ask := tt.ask.(type) {
		case *authorizationv1.ResourceAttributes:
			question.Spec.ResourceAttributes = ask
		case *authorizationv1.NonResourceAttributes:
			question.Spec.NonResourceAttributes = ask
		}
		got := into[authorizationv1.SelfSubjectAccessReview](f, f.do("POST", mayI, question, "X-User: "+tt.user), 201)
		if got.Kind != "SelfSubjectAccessReview" || got.Status.Allowed != tt.allowed {
			t.Errorf("%s asks %+v: %+v", tt.user, tt.ask, got.Status)
		}
	}
	for attributes, want := range map[string]string{
		`"fieldSelector":{"rawSelector":"a"},"labelSelector":{"rawSelector":"a=b=c"}`:                                                                                       "spec.resourceAttributes.fieldSelector ignored due to parse error; spec.resourceAttributes.labelSelector ignored due to parse error",
		`"fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]},{"key":"a","operator":"Exists"}]}`:                                                     "spec.resourceAttributes.fieldSelector partially ignored due to parse error",
		`"labelSelector":{"requirements":[{"key":"a","operator":"Exists"},{"key":"a","operator":"Odd"}]}`:                                                                   "spec.resourceAttributes.labelSelector partially ignored due to parse error",
		`"fieldSelector":{"rawSelector":"a=b"},"labelSelector":{"requirements":[{"key":"a","operator":"NotIn","values":["b"]},{"key":"b","operator":"In","values":["c"]}]}`: "",
	} {
		got := into[authorizationv1.SelfSubjectAccessReview](f, f.do("POST", mayI, `{"spec":{"resourceAttributes":{"verb":"list","resource":"pods",`+attributes+`}}}`, "X-User: mate"), 201)
		if got.Status.EvaluationError != want {
			t.Errorf("%s: %q, want %q", attributes, got.Status.EvaluationError, want)
		}
	}
	f.refused(f.do("POST", mayI, "{}"), 422, metav1.StatusReasonInvalid, "exactly one of nonResourceAttributes or resourceAttributes must be specified")
	f.refused(f.do("POST", mayI, "{}", "X-User: "), 403, metav1.StatusReasonForbidden, "")
	f.refused(f.do("GET", mayI, nil), 405, metav1.StatusReasonMethodNotAllowed, "")
	f.refused(f.do("POST", whoAmI, "{}", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"), 406, metav1.StatusReasonNotAcceptable, "")

	rules := func(user string) authorizationv1.SubjectRulesReviewStatus {
		question := authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}
		return into[authorizationv1.SelfSubjectRulesReview](f, f.do("POST", whatMayI, question, "X-User: "+user), 201).Status
	}
	if got := rules("boss"); len(got.ResourceRules) < 2 || got.Incomplete || !slices.Contains(got.ResourceRules[0].Verbs, "*") {
		t.Errorf("rules of the boss: %+v", got)
	}
	if got := rules("mate"); len(got.ResourceRules) != 2 || got.Incomplete || len(got.NonResourceRules) == 0 {
		t.Errorf("rules of a mate: %+v", got)
	}
	if got := rules("system:node:a"); !got.Incomplete || got.EvaluationError == "" {
		t.Errorf("rules of a node: %+v", got)
	}
	f.refused(f.do("POST", whatMayI, "{}"), 422, metav1.StatusReasonInvalid, "spec.namespace")

	me := into[authenticationv1.SelfSubjectReview](f, f.do("POST", whoAmI+"?dryRun=All", "{}", "X-User: mate"), 201)
	if u := me.Status.UserInfo; u.Username != "mate" || !slices.Equal(u.Groups, []string{auth.GroupAuthenticated}) {
		t.Errorf("who am I: %+v", u)
	}
	if after := f.store.Revision(); after != before {
		t.Errorf("questions wrote revisions %d to %d", before, after)
	}
}
