package policy

import (
	"context"
	"fmt"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install" // the scheme
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrole"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding"
	"k8s.io/kubernetes/pkg/registry/rbac/role"
	"k8s.io/kubernetes/pkg/registry/rbac/rolebinding"

	ours "github.com/sampan-io/sampan/catalog/rbac"
)

// strategy is what upstream's API server validates a kind with.
type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
	ValidateDeclaratively(ctx context.Context, obj, old runtime.Object, errs field.ErrorList, op operation.Type, config rest.DeclarativeValidationConfig) field.ErrorList
	DeclarativeValidationConfig(ctx context.Context, obj, old runtime.Object) rest.DeclarativeValidationConfig
}

var (
	_ strategy = role.Strategy
	_ strategy = rolebinding.Strategy
	_ strategy = clusterrole.Strategy
	_ strategy = clusterrolebinding.Strategy
)

// validate returns upstream's errors, without those about metadata. old is nil for a creation.
func validate(t *testing.T, s strategy, resource string, obj, old runtime.Object) []string {
	t.Helper()
	ctx := genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIGroup: rbacv1.GroupName, APIVersion: "v1", Resource: resource,
	})
	in := toInternal(t, defaulted(obj))
	if old == nil {
		return texts(s.ValidateDeclaratively(ctx, in, nil, s.Validate(ctx, in), operation.Create, s.DeclarativeValidationConfig(ctx, in, nil)))
	}
	was := toInternal(t, defaulted(old))
	return texts(s.ValidateDeclaratively(ctx, in, was, s.ValidateUpdate(ctx, in, was), operation.Update, s.DeclarativeValidationConfig(ctx, in, was)))
}

func defaulted(o runtime.Object) runtime.Object {
	o = o.DeepCopyObject()
	legacyscheme.Scheme.Default(o)
	return o
}

func texts(errs field.ErrorList) []string {
	var lines []string
	for _, e := range errs {
		lines = append(lines, e.Error())
	}
	slices.Sort(lines)
	return lines
}

func TestValidation(t *testing.T) {
	rule := func(verbs, groups, resources, names, urls []string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: verbs, APIGroups: groups, Resources: resources, ResourceNames: names, NonResourceURLs: urls}
	}
	x := []string{"x"}
	var rules []rbacv1.PolicyRule
	for i := range 32 {
		list := func(bit int) []string {
			if i>>bit&1 == 1 {
				return x
			}
			return nil
		}
		rules = append(rules, rule(list(0), list(1), list(2), list(3), list(4)))
	}
	values := func(v string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{"a": v}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "b", Operator: "In", Values: []string{v}}}}
	}
	var subjects []rbacv1.Subject
	for _, kind := range []string{"User", "Group", "ServiceAccount", "Robot", ""} {
		for _, group := range []string{"", rbacv1.GroupName, "other"} {
			for _, name := range []string{"", "x", "X/y", "..", "a:b"} {
				for _, namespace := range []string{"", "n"} {
					subjects = append(subjects, rbacv1.Subject{Kind: kind, APIGroup: group, Name: name, Namespace: namespace})
				}
			}
		}
	}
	var refs []rbacv1.RoleRef
	for _, kind := range []string{"Role", "ClusterRole", "role", ""} {
		for _, group := range []string{"", rbacv1.GroupName, "other"} {
			for _, name := range []string{"", "x", "a/b", "..", "a%b", "system::a"} {
				refs = append(refs, rbacv1.RoleRef{Kind: kind, APIGroup: group, Name: name})
			}
		}
	}
	meta := func(namespace string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: "system::x", ResourceVersion: "7"}
	}
	checks := 0
	check := func(what any, want []string, got field.ErrorList) {
		t.Helper()
		checks++
		if g := texts(got); !slices.Equal(g, want) {
			t.Errorf("%+v:\n%q, want\n%q", what, g, want)
		}
	}

	for _, r := range rules {
		a := &rbacv1.Role{ObjectMeta: meta("n"), Rules: []rbacv1.PolicyRule{rules[7], r}}
		check(a, validate(t, role.Strategy, "roles", a, nil), ours.ValidateRole(a, nil))
		b := &rbacv1.ClusterRole{ObjectMeta: meta(""), Rules: []rbacv1.PolicyRule{r, rules[7]}}
		check(b, validate(t, clusterrole.Strategy, "clusterroles", b, nil), ours.ValidateClusterRole(b, nil))
	}
	for _, selectors := range [][]metav1.LabelSelector{nil, {values("x")}, {values("x"), values("?")}, {{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "/", Operator: "Is"}}}}} {
		r := &rbacv1.ClusterRole{ObjectMeta: meta(""), AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: selectors}}
		check(r, validate(t, clusterrole.Strategy, "clusterroles", r, nil), ours.ValidateClusterRole(r, nil))
		for _, before := range []string{"x", "?"} {
			old := r.DeepCopy()
			old.AggregationRule.ClusterRoleSelectors = []metav1.LabelSelector{values(before)}
			check([]any{r, old}, validate(t, clusterrole.Strategy, "clusterroles", r, old), ours.ValidateClusterRole(r, old))
		}
	}
	bindings := func(ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		a := &rbacv1.RoleBinding{ObjectMeta: meta("n"), RoleRef: ref, Subjects: slices.Clone(subjects)}
		want := validate(t, rolebinding.Strategy, "rolebindings", a, nil)
		ours.DefaultRoleBinding(a)
		check(a, want, ours.ValidateRoleBinding(a, nil))
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: meta(""), RoleRef: ref, Subjects: slices.Clone(subjects)}
		want = validate(t, clusterrolebinding.Strategy, "clusterrolebindings", b, nil)
		ours.DefaultClusterRoleBinding(b)
		check(b, want, ours.ValidateClusterRoleBinding(b, nil))
	}
	valid := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "x"}
	for _, s := range subjects {
		bindings(valid, []rbacv1.Subject{s, {Kind: "User", Name: "jane"}})
	}
	for _, ref := range refs {
		bindings(ref, nil)
	}
	for _, ref := range []rbacv1.RoleRef{valid, {APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "y"}} {
		a := &rbacv1.RoleBinding{ObjectMeta: meta("n"), RoleRef: ref}
		was := &rbacv1.RoleBinding{ObjectMeta: meta("n"), RoleRef: valid}
		check(fmt.Sprint(ref), validate(t, rolebinding.Strategy, "rolebindings", a, was), ours.ValidateRoleBinding(a, was))
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: meta(""), RoleRef: ref}
		is := &rbacv1.ClusterRoleBinding{ObjectMeta: meta(""), RoleRef: valid}
		check(fmt.Sprint(ref), validate(t, clusterrolebinding.Strategy, "clusterrolebindings", b, is), ours.ValidateClusterRoleBinding(b, is))
	}
	t.Logf("compared %d objects", checks)
}
