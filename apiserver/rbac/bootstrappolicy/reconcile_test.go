package bootstrappolicy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
)

func TestReconcileOfNothingCreatesAll(t *testing.T) {
	all := bootstrappolicy.All()
	changes := bootstrappolicy.Reconcile(rbac.Objects{}, all)
	if want := len(all.ClusterRoles) + len(all.ClusterRoleBindings) + len(all.Roles) + len(all.RoleBindings); len(changes) != want {
		t.Errorf("%d changes, want %d", len(changes), want)
	}
	for _, c := range changes {
		if c.Operation != bootstrappolicy.Create {
			t.Errorf("%s of %s", c.Operation, c.Object.GetName())
		}
	}
	if changes := bootstrappolicy.Reconcile(all, bootstrappolicy.All()); len(changes) > 0 {
		t.Errorf("%d changes of objects that are as wanted", len(changes))
	}
}

func TestReconcileRole(t *testing.T) {
	selector := func(label string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}}
	}
	rule := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{""}, Resources: []string{"pods"}}
	}
	role := func(rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r", Labels: map[string]string{"l": "1"}}, Rules: rules}
	}
	change := func(r *rbacv1.ClusterRole, f func(*rbacv1.ClusterRole)) *rbacv1.ClusterRole { f(r); return r }
	for name, tt := range map[string]struct{ existing, wanted, result *rbacv1.ClusterRole }{ // result is nil without a change
		"as wanted":         {role(rule("get")), role(rule("get")), nil},
		"more than wanted":  {role(rule("*")), role(rule("get")), nil},
		"a missing verb":    {role(rule("get", "list")), role(rule("get", "watch")), role(rule("get", "list"), rule("watch"))},
		"rules are removed": {role(), role(rule("get")), role(rule("get"))},
		"protected": {
			change(role(), func(r *rbacv1.ClusterRole) {
				r.Annotations = map[string]string{rbacv1.AutoUpdateAnnotationKey: "false"}
			}),
			role(rule("get")),
			nil,
		},
		"a label of the user prevails, an annotation is added": {
			change(role(), func(r *rbacv1.ClusterRole) { r.Labels = map[string]string{"l": "2", "m": "3"} }),
			change(role(), func(r *rbacv1.ClusterRole) { r.Annotations = map[string]string{"a": "b"} }),
			change(role(), func(r *rbacv1.ClusterRole) {
				r.Labels, r.Annotations = map[string]string{"l": "2", "m": "3"}, map[string]string{"a": "b"}
			}),
		},
		"a selector is added": {
			change(role(), func(r *rbacv1.ClusterRole) {
				r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{selector("x")}}
			}),
			change(role(), func(r *rbacv1.ClusterRole) {
				r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{selector("y"), selector("x")}}
			}),
			change(role(), func(r *rbacv1.ClusterRole) {
				r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{selector("x"), selector("y")}}
			}),
		},
		"an aggregation that is not wanted is removed": {
			change(role(), func(r *rbacv1.ClusterRole) {
				r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{selector("x")}}
			}),
			role(),
			role(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := tt.existing.DeepCopy()
			changes := bootstrappolicy.Reconcile(rbac.Objects{ClusterRoles: []rbacv1.ClusterRole{*tt.existing}}, rbac.Objects{ClusterRoles: []rbacv1.ClusterRole{*tt.wanted}})
			var want []bootstrappolicy.Change
			if tt.result != nil {
				want = []bootstrappolicy.Change{{Operation: bootstrappolicy.Update, Object: tt.result}}
			}
			if diff := cmp.Diff(want, changes); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, tt.existing); diff != "" {
				t.Errorf("the existing role was changed:\n%s", diff)
			}
		})
	}
}

func TestReconcileBinding(t *testing.T) {
	binding := func(role string, users ...string) rbacv1.RoleBinding {
		b := rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "b"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role}}
		for _, u := range users {
			b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: u})
		}
		return b
	}
	elsewhere := binding("r", "jane", "joe")
	elsewhere.Namespace = "m"
	for name, tt := range map[string]struct {
		existing, wanted rbacv1.RoleBinding
		operation        bootstrappolicy.Operation // empty without a change
		result           rbacv1.RoleBinding
	}{
		"as wanted":                     {binding("r", "jane", "joe"), binding("r", "joe"), "", rbacv1.RoleBinding{}},
		"a subject is added":            {binding("r", "jane"), binding("r", "joe"), bootstrappolicy.Update, binding("r", "jane", "joe")},
		"another role":                  {binding("s", "jane"), binding("r", "joe"), bootstrappolicy.Recreate, binding("r", "joe")},
		"its name in another namespace": {elsewhere, binding("r", "joe"), bootstrappolicy.Create, binding("r", "joe")},
	} {
		t.Run(name, func(t *testing.T) {
			changes := bootstrappolicy.Reconcile(rbac.Objects{RoleBindings: []rbacv1.RoleBinding{tt.existing}}, rbac.Objects{RoleBindings: []rbacv1.RoleBinding{tt.wanted}})
			var want []bootstrappolicy.Change
			if tt.operation != "" {
				want = []bootstrappolicy.Change{{Operation: tt.operation, Object: &tt.result}}
			}
			if diff := cmp.Diff(want, changes); diff != "" {
				t.Error(diff)
			}
		})
	}
}
