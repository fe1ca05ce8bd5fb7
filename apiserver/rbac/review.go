package rbac

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// MayI answers whether the user that ctx carries may do what r asks about.
func (z *Authorizer) MayI(ctx context.Context, r *authorizationv1.SelfSubjectAccessReview) (*authorizationv1.SelfSubjectAccessReview, error) {
	user, ok := auth.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	answer := r.DeepCopy()
	answer.Status = z.review(ctx, user, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return answer, nil
}

// May answers whether the user that r names may do what r asks about.
func (z *Authorizer) May(ctx context.Context, r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	answer := r.DeepCopy()
	answer.Status = z.review(ctx, subject(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return answer, nil
}

// MayLocally answers as May does, for a question about one namespace.
func (z *Authorizer) MayLocally(ctx context.Context, r *authorizationv1.LocalSubjectAccessReview) (*authorizationv1.LocalSubjectAccessReview, error) {
	answer := r.DeepCopy()
	answer.Status = z.review(ctx, subject(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return answer, nil
}

// subject returns the user that a review names.
func subject(s *authorizationv1.SubjectAccessReviewSpec) *auth.User {
	u := &auth.User{Name: s.User, UID: s.UID, Groups: s.Groups, Extra: map[string][]string{}}
	for key, values := range s.Extra {
		u.Extra[key] = values
	}
	return u
}

// review decides the question of a review: a resource or a path.
func (z *Authorizer) review(ctx context.Context, user *auth.User, o *authorizationv1.ResourceAttributes, p *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	a := Attributes{User: user}
	var ignored []string
	if p != nil {
		a.Verb, a.Path = p.Verb, p.Path
	} else if o != nil {
		a.Verb, a.Group, a.Version, a.Resource, a.Subresource = o.Verb, o.Group, o.Version, o.Resource, o.Subresource
		a.Namespace, a.Name = o.Namespace, o.Name
		if s := o.FieldSelector; s != nil {
			var whole bool
			a.Fields, whole = selected(s)
			ignored = append(ignored, ignoring("fieldSelector", a.Fields != nil, whole)...)
		}
		if s := o.LabelSelector; s != nil {
			some, whole := selectsByLabels(s)
			ignored = append(ignored, ignoring("labelSelector", some, whole)...)
		}
	}
	d := z.Authorize(ctx, a)
	return authorizationv1.SubjectAccessReviewStatus{Allowed: d.Allowed, Reason: d.Reason, EvaluationError: strings.Join(ignored, "; ")}
}

// ignoring returns the message about a selector that was not understood as a whole, or in no part.
func ignoring(name string, some, whole bool) []string {
	switch {
	case whole:
		return nil
	case some:
		return []string{"spec.resourceAttributes." + name + " partially ignored due to parse error"}
	}
	return []string{"spec.resourceAttributes." + name + " ignored due to parse error"}
}

// selectsByLabels reports whether some requirements of a label selector can be understood, and whether all can. No rule is about labels.
func selectsByLabels(s *authorizationv1.LabelSelectorAttributes) (some, whole bool) {
	if s.RawSelector != "" {
		_, err := labels.Parse(s.RawSelector)
		return err == nil, err == nil
	}
	whole = true
	for _, r := range s.Requirements {
		_, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}})
		some, whole = some || err == nil, whole && err == nil
	}
	return some, whole
}

// selected reads a field selector as far as it narrows a question; what is not understood does not, as in Kubernetes. Whole reports
// whether everything was understood.
func selected(s *authorizationv1.FieldSelectorAttributes) (sel fields.Selector, whole bool) {
	if s.RawSelector != "" {
		sel, err := fields.ParseSelector(s.RawSelector)
		if err != nil {
			return nil, false
		}
		return sel, true
	}
	var all []fields.Selector
	for _, r := range s.Requirements {
		if len(r.Values) != 1 {
			continue
		}
		switch r.Operator {
		case metav1.FieldSelectorOpIn:
			all = append(all, fields.OneTermEqualSelector(r.Key, r.Values[0]))
		case metav1.FieldSelectorOpNotIn:
			all = append(all, fields.OneTermNotEqualSelector(r.Key, r.Values[0]))
		case metav1.FieldSelectorOpExists, metav1.FieldSelectorOpDoesNotExist:
		}
	}
	whole = len(all) == len(s.Requirements)
	if len(all) == 0 {
		return nil, whole
	}
	return fields.AndSelectors(all...), whole
}

// MyRules answers what the user that ctx carries may do in the namespace that r names. What
// a node may do because it is a node are no rules, so its answer says that it is not whole.
func (z *Authorizer) MyRules(ctx context.Context, r *authorizationv1.SelfSubjectRulesReview) (*authorizationv1.SelfSubjectRulesReview, error) {
	user, ok := auth.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	answer := r.DeepCopy()
	answer.Status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
	}
	add := func(rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			if len(rule.Resources) > 0 {
				answer.Status.ResourceRules = append(answer.Status.ResourceRules, authorizationv1.ResourceRule{
					Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
				})
			}
			if len(rule.NonResourceURLs) > 0 {
				answer.Status.NonResourceRules = append(answer.Status.NonResourceRules, authorizationv1.NonResourceRule{
					Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs,
				})
			}
		}
	}
	rules, err := z.policy.RulesFor(user, r.Spec.Namespace)
	add(rules)
	errs := []error{err}
	if node, ok := user.Node(); ok {
		add(nodeRules)
		answer.Status.Incomplete = true
		errs = append(errs, fmt.Errorf("the permissions of node '%s' for its own objects are not expressed as rules", node))
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		answer.Status.EvaluationError = err.Error()
	}
	return answer, nil
}
