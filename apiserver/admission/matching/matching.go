// Package matching decides whether a webhook or a policy is about a request: by rules, by the labels of the namespace and
// of the object, and by the match policy.
package matching

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/catalog"
)

// A Constraint says which requests a webhook or a policy is about: the fields are those of the API.
type Constraint struct {
	Rules    []admissionregistrationv1.NamedRuleWithOperations
	Excluded []admissionregistrationv1.NamedRuleWithOperations

	// Always says that no Rules at all match every request, as in a policy's binding; otherwise they match none.
	Always bool

	NamespaceSelector, ObjectSelector *metav1.LabelSelector
	MatchPolicy                       *admissionregistrationv1.MatchPolicyType // nil means Exact
}

// Rules returns the rules of a webhook as those of a constraint.
func Rules(rules []admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.NamedRuleWithOperations {
	named := make([]admissionregistrationv1.NamedRuleWithOperations, len(rules))
	for i := range rules {
		named[i].RuleWithOperations = rules[i]
	}
	return named
}

// A Matcher is a compiled [Constraint]. It never changes.
type Matcher struct {
	rules, excluded    []admissionregistrationv1.NamedRuleWithOperations
	always, equivalent bool
	namespaces         labels.Selector
	objects            labels.Selector
	fault              error // of the selectors
}

// Compile returns the matcher of a constraint, which may come from an object that was stored without validation: a
// request that its rules match then fails.
func Compile(c *Constraint) *Matcher {
	m := &Matcher{rules: c.Rules, excluded: c.Excluded, always: c.Always}
	m.equivalent = c.MatchPolicy != nil && *c.MatchPolicy == admissionregistrationv1.Equivalent
	var err error
	if m.namespaces, err = selector(c.NamespaceSelector); err != nil {
		m.fault = err
	}
	if m.objects, err = selector(c.ObjectSelector); err != nil {
		m.fault = errors.Join(m.fault, err)
	}
	return m
}

// selector is nil if it selects everything. Absent selectors do, as the API's default for them is the empty selector.
func selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return nil, nil // no selector is one that selects everything
	}
	compiled, err := metav1.LabelSelectorAsSelector(s)
	if err != nil || compiled.Empty() {
		return nil, err
	}
	return compiled, nil
}

// Exempt reports whether no webhook and no policy is asked about a request: it is about their own configuration, so that
// an administrator can always repair that, or a part of another request.
func Exempt(a *admission.Attributes) bool {
	if a.Inner {
		return true
	}
	if a.Kind.Group != admissionregistrationv1.GroupName {
		return false
	}
	switch a.Kind.Kind {
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding":
		return true
	}
	return false
}

// Match returns the version of the request's kind in which the webhook or policy sees the request, or nil if it is not
// about the request. The error is an API status error. The reader is asked for the request's namespace only where its labels matter.
func (m *Matcher) Match(ctx context.Context, a *admission.Attributes, objects admission.Reader) (*catalog.Kind, error) {
	in := m.served(a)
	if in == nil {
		return nil, nil // it does not match
	}
	if m.fault != nil {
		return nil, apierrors.NewInternalError(m.fault)
	}
	if m.objects != nil && !selects(m.objects, a.Object) {
		if old, ok := a.Previous().(catalog.Object); !ok || !selects(m.objects, old) {
			return nil, nil // it does not match
		}
	}
	if m.namespaces != nil {
		matches, err := m.inNamespace(ctx, a, objects)
		if err != nil || !matches {
			return nil, err
		}
	}
	return in, nil
}

func (m *Matcher) served(a *admission.Attributes) *catalog.Kind {
	if m.first(m.excluded, a) != nil {
		return nil
	}
	if m.always && len(m.rules) == 0 {
		return a.Requested()
	}
	return m.first(m.rules, a)
}

// first returns the version of the kind that the rules match: that of the request if one of them does, and otherwise, with match policy
// Equivalent, the first other version that the first rule matches.
func (m *Matcher) first(rules []admissionregistrationv1.NamedRuleWithOperations, a *admission.Attributes) *catalog.Kind {
	requested := a.Requested()
	for i := range rules {
		if ruleMatches(&rules[i], a, requested) {
			return requested
		}
	}
	if !m.equivalent || len(rules) == 0 {
		return nil
	}
	served := a.Kind.Served()
	for i := range rules {
		for _, other := range served {
			if other.GVR() != requested.GVR() && ruleMatches(&rules[i], a, other) {
				return other
			}
		}
	}
	return nil
}

func ruleMatches(r *admissionregistrationv1.NamedRuleWithOperations, a *admission.Attributes, in *catalog.Kind) bool {
	if !anyOf(r.Operations, admissionregistrationv1.OperationAll, admissionregistrationv1.OperationType(a.Operation)) ||
		!anyOf(r.APIGroups, "*", in.Group) || !anyOf(r.APIVersions, "*", in.Version) || !scopeMatches(r.Scope, in) {
		return false
	}
	if len(r.ResourceNames) > 0 && !slices.Contains(r.ResourceNames, a.AdmissionName()) {
		return false
	}
	return slices.ContainsFunc(r.Resources, func(pattern string) bool {
		resource, sub, _ := strings.Cut(pattern, "/")
		return (resource == "*" || resource == in.Resource) && (sub == "*" || sub == a.Subresource)
	})
}

func anyOf[S ~string](all []S, wildcard, want S) bool {
	return slices.ContainsFunc(all, func(s S) bool { return s == wildcard || s == want })
}

func scopeMatches(scope *admissionregistrationv1.ScopeType, in *catalog.Kind) bool {
	switch {
	case scope == nil || *scope == admissionregistrationv1.AllScopes:
		return true
	case *scope == admissionregistrationv1.NamespacedScope:
		return in.Namespaced
	case *scope == admissionregistrationv1.ClusterScope:
		return !in.Namespaced
	}
	return false
}

func selects(s labels.Selector, obj catalog.Object) bool {
	return obj != nil && s.Matches(labels.Set(obj.GetLabels()))
}

// inNamespace compares the labels of the request's namespace. A Namespace object that is written counts with its new labels; other objects of
// the cluster's scope match always.
func (m *Matcher) inNamespace(ctx context.Context, a *admission.Attributes, objects admission.Reader) (bool, error) {
	isNamespace := a.Kind.GR() == schema.GroupResource{Resource: "namespaces"}
	switch {
	case isNamespace && a.Subresource == "" && a.Object != nil:
		return selects(m.namespaces, a.Object), nil
	case !isNamespace && a.Namespace == "":
		return true, nil
	}
	ns, err := Namespace(ctx, a, objects)
	if err != nil {
		return false, err
	}
	return ns == nil || selects(m.namespaces, ns), nil
}

// Namespace returns the stored namespace that the request is in, or that it is about; nil if it is about another object of the cluster's scope. The object is
// shared. The error is an API status error: not found, if there is none.
func Namespace(ctx context.Context, a *admission.Attributes, objects admission.Reader) (*corev1.Namespace, error) {
	name := a.AdmissionNamespace()
	if name == "" {
		return nil, nil // there is none
	}
	obj, err := objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("namespaces"), "", name)
	if err != nil {
		if _, ok := err.(apierrors.APIStatus); ok {
			return nil, err
		}
		return nil, apierrors.NewInternalError(err)
	}
	ns, ok := obj.(*corev1.Namespace)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("namespaces/%s is a %T", name, obj))
	}
	return ns, nil
}
