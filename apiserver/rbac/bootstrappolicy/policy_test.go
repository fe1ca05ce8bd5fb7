package bootstrappolicy_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
)

// TestSampanAddsOnlyWhatIsMissing checks that upstream's objects do not already grant a part of our
// additional roles.
func TestSampanAddsOnlyWhatIsMissing(t *testing.T) {
	upstream, o := rbac.NewPolicy(bootstrappolicy.Upstream()), bootstrappolicy.Sampan()
	check := func(namespace, role string, rules []rbacv1.PolicyRule, subjects []rbacv1.Subject) {
		for _, s := range subjects {
			held, err := upstream.RulesFor(&auth.User{Name: s.Name, Groups: []string{auth.GroupAuthenticated}}, namespace)
			if err != nil {
				t.Fatal(err)
			}
			if all, missing := rbac.Missing(nil, rules), rbac.Missing(held, rules); len(missing) != len(all) {
				t.Errorf("%s has %d rules, but %s lacks only %v", role, len(all), s.Name, missing)
			}
		}
	}
	for _, b := range o.ClusterRoleBindings {
		if slices.ContainsFunc(bootstrappolicy.Upstream().ClusterRoles, func(r rbacv1.ClusterRole) bool { return r.Name == b.RoleRef.Name }) {
			continue // upstream leaves it to the administrator to bind this role
		}
		i := slices.IndexFunc(o.ClusterRoles, func(r rbacv1.ClusterRole) bool { return r.Name == b.RoleRef.Name })
		if i < 0 || b.Name != b.RoleRef.Name {
			t.Fatalf("binding %s refers to %s: want a role of the same name", b.Name, b.RoleRef.Name)
		}
		check("", b.Name, o.ClusterRoles[i].Rules, b.Subjects)
	}
	for i, b := range o.RoleBindings {
		check(b.Namespace, o.Roles[i].Name, o.Roles[i].Rules, b.Subjects)
	}
}

// TestEveryBindingHasItsRole checks that no bootstrap binding refers to a role that does not exist.
func TestEveryBindingHasItsRole(t *testing.T) {
	o := bootstrappolicy.All()
	names := map[rbacv1.RoleRef]bool{}
	ref := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	for _, r := range o.ClusterRoles {
		names[ref("ClusterRole", r.Name)] = true
	}
	for _, r := range o.Roles {
		names[ref("Role", r.Namespace+"/"+r.Name)] = true
	}
	for _, b := range o.ClusterRoleBindings {
		if !names[b.RoleRef] {
			t.Errorf("cluster role binding %s refers to %v, which does not exist", b.Name, b.RoleRef)
		}
	}
	for _, b := range o.RoleBindings {
		if r := b.RoleRef; !names[r] && !names[ref(r.Kind, b.Namespace+"/"+r.Name)] {
			t.Errorf("role binding %s refers to %v, which does not exist", b.Name, r)
		}
	}
}

func BenchmarkAll(b *testing.B) {
	for b.Loop() {
		bootstrappolicy.All()
	}
}
