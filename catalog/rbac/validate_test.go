package rbac_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog/rbac"
)

// test/upstream/policy compares these functions with upstream's on many more objects.
func TestValidation(t *testing.T) {
	x := []string{"x"}
	role := func(rules ...rbacv1.PolicyRule) *rbacv1.Role { return &rbacv1.Role{Rules: rules} }
	clusterRole := func(selectors []metav1.LabelSelector, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		r := &rbacv1.ClusterRole{Rules: rules}
		if selectors != nil {
			r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: selectors}
		}
		return r
	}
	binding := func(role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
		b := &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{Kind: "Role", Name: role}, Subjects: subjects}
		rbac.DefaultRoleBinding(b)
		return b
	}
	clusterBinding := func(kind, role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
		b := &rbacv1.ClusterRoleBinding{RoleRef: rbacv1.RoleRef{Kind: kind, Name: role}, Subjects: subjects}
		rbac.DefaultClusterRoleBinding(b)
		return b
	}
	subject := func(kind, namespace, name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: kind, Namespace: namespace, Name: name}
	}
	for name, tt := range map[string]struct {
		got  field.ErrorList
		want string
	}{
		"a role":             {rbac.ValidateRole(role(rbacv1.PolicyRule{Verbs: x, APIGroups: []string{""}, Resources: x, ResourceNames: x}), nil), ""},
		"no verbs":           {rbac.ValidateRole(role(rbacv1.PolicyRule{APIGroups: x, Resources: x}), nil), "rules[0].verbs: Required value"},
		"no groups":          {rbac.ValidateRole(role(rbacv1.PolicyRule{Verbs: x, Resources: x}), nil), "rules[0].apiGroups: Required value: resource rules must supply at least one api group"},
		"no resources":       {rbac.ValidateRole(role(rbacv1.PolicyRule{Verbs: x, APIGroups: x}), nil), "rules[0].resources: Required value: resource rules must supply at least one resource"},
		"paths in a role":    {rbac.ValidateRole(role(rbacv1.PolicyRule{Verbs: x, NonResourceURLs: x}), nil), `rules[0].nonResourceURLs: Invalid value: ["x"]: namespaced rules cannot apply to non-resource URLs`},
		"paths":              {rbac.ValidateClusterRole(clusterRole(nil, rbacv1.PolicyRule{Verbs: x, NonResourceURLs: x}), nil), ""},
		"paths and groups":   {rbac.ValidateClusterRole(clusterRole(nil, rbacv1.PolicyRule{Verbs: x, NonResourceURLs: x, APIGroups: x}), nil), `rules[0].nonResourceURLs: Invalid value: ["x"]: rules cannot apply to both regular resources and non-resource URLs`},
		"no selectors":       {rbac.ValidateClusterRole(clusterRole([]metav1.LabelSelector{}), nil), "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"},
		"a binding":          {rbac.ValidateRoleBinding(binding("system::x", subject("User", "", "a:b"), subject("ServiceAccount", "", "x")), nil), ""},
		"a name of a role":   {rbac.ValidateRoleBinding(binding("a/b"), nil), `roleRef.name: Invalid value: "a/b": may not contain '/'`},
		"no role":            {rbac.ValidateRoleBinding(binding(""), nil), "roleRef.name: Required value"},
		"the same role":      {rbac.ValidateRoleBinding(binding("x"), binding("x", subject("User", "", "y"))), ""},
		"another role":       {rbac.ValidateRoleBinding(binding("x"), binding("y")), `roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"x"}: field is immutable`},
		"a kind of subjects": {rbac.ValidateRoleBinding(binding("x", subject("Robot", "", "x")), nil), `subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"`},
		"a cluster binding":  {rbac.ValidateClusterRoleBinding(clusterBinding("ClusterRole", "x"), clusterBinding("ClusterRole", "x")), ""},
		"a role everywhere":  {rbac.ValidateClusterRoleBinding(clusterBinding("Role", "x"), nil), `roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"`},
		"no namespace":       {rbac.ValidateClusterRoleBinding(clusterBinding("ClusterRole", "x", subject("ServiceAccount", "", "x")), nil), "subjects[0].namespace: Required value"},
	} {
		var lines []string
		for _, e := range tt.got {
			lines = append(lines, e.Error())
		}
		if got := strings.Join(lines, "\n"); got != tt.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, tt.want)
		}
	}
}

func TestValidateName(t *testing.T) {
	for name, valid := range map[string]bool{"system::leader-locking-kube-scheduler": true, "Any Thing?": true, "a/b": false, "..": false, "50%": false} {
		if faults := rbac.ValidateName(name, false); (len(faults) == 0) != valid {
			t.Errorf("ValidateName(%q) = %q", name, faults)
		}
	}
}
