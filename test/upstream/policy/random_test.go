package policy

import (
	"math/rand/v2"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
)

// chance picks small values, so that they often meet.
type chance struct{ *rand.Rand }

func newChance(seed uint64) chance { return chance{rand.New(rand.NewPCG(seed, 2))} }

func pick[T any](c chance, from ...T) T { return from[c.IntN(len(from))] }

// some returns between least and 3 of the values.
func some[T any](c chance, least int, from ...T) (list []T) {
	for range least + c.IntN(4-least) {
		list = append(list, pick(c, from...))
	}
	return list
}

func (c chance) rules() (rules []rbacv1.PolicyRule) {
	for range c.IntN(7) {
		r := rbacv1.PolicyRule{Verbs: some(c, 1, "get", "get", "list", "create", "escalate", "bind", "*")}
		switch c.IntN(8) {
		case 0, 1:
			r.NonResourceURLs = some(c, 1, "/version", "/apis/*", "/apis", "/apis/**", "*", "/*", "")
		case 2: // not valid
			r.APIGroups, r.Resources = some(c, 0, "", "apps"), some(c, 0, "pods", "pods/")
			r.NonResourceURLs = some(c, 0, "/apis/*")
		default:
			r.APIGroups = some(c, 1, "", "apps", "*", rbacv1.GroupName)
			r.Resources = some(c, 1, "pods", "pods/log", "*/log", "*/*", "pods/*", "roles", "clusterroles", "*", "log")
			if c.IntN(3) == 0 {
				r.ResourceNames = some(c, 0, "x", "r1", "")
			}
		}
		rules = append(rules, r)
	}
	return rules
}

func (c chance) subjects() (subjects []rbacv1.Subject) {
	for range c.IntN(6) {
		s := rbacv1.Subject{Kind: pick(c, "User", "Group", "Group", "ServiceAccount", "Robot"), Name: pick(c, "a", "a", "b", "b", "c", "system:serviceaccount:n1:a")}
		if s.Kind == "ServiceAccount" {
			s.Namespace = pick(c, "", "n1", "n2")
		}
		subjects = append(subjects, s)
	}
	return subjects
}

func (c chance) user() *auth.User {
	u := &auth.User{Name: pick(c, "a", "b", "c", "system:serviceaccount:n1:a", "system:serviceaccount:n2:b"), Groups: some(c, 0, "a", "a", "b", "b", "d")}
	if c.IntN(20) == 0 {
		u.Groups = append(u.Groups, auth.GroupMasters)
	}
	return u
}

func (c chance) ref() rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: pick(c, "ClusterRole", "ClusterRole", "ClusterRole", "Role", "Role", "Role", "Rule"), Name: c.name()}
}

func (c chance) name() string { return pick(c, "r1", "r1", "r2", "r2", "r3", "r3", "r4", "r4", "r5") }

// objects returns some of the objects that there could be.
func (c chance) objects() (o rbac.Objects) {
	for _, name := range []string{"r1", "r2", "r3", "r4"} {
		meta := metav1.ObjectMeta{Name: name}
		if c.IntN(4) > 0 {
			o.ClusterRoles = append(o.ClusterRoles, rbacv1.ClusterRole{ObjectMeta: meta, Rules: c.rules()})
		}
		if c.IntN(4) > 0 {
			o.ClusterRoleBindings = append(o.ClusterRoleBindings, rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: c.ref(), Subjects: c.subjects()})
		}
		for _, namespace := range []string{"n1", "n2"} {
			meta.Namespace = namespace
			if c.IntN(4) > 0 {
				o.Roles = append(o.Roles, rbacv1.Role{ObjectMeta: meta, Rules: c.rules()})
			}
			if c.IntN(4) > 0 {
				o.RoleBindings = append(o.RoleBindings, rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: c.ref(), Subjects: c.subjects()})
			}
		}
	}
	return o
}

func (c chance) request() rbac.Attributes {
	a := rbac.Attributes{User: c.user(), Verb: pick(c, "get", "get", "list", "create", "*")}
	a.User.Groups = slices.DeleteFunc(a.User.Groups, func(g string) bool { return g == auth.GroupMasters })
	if c.IntN(4) == 0 {
		a.Path = pick(c, "/version", "/apis", "/apis/apps", "/metrics", "/")
		return a
	}
	a.Group, a.Resource = pick(c, "", "", "apps", "batch"), pick(c, "pods", "pods", "pods/log", "log", "jobs")
	a.Subresource = pick(c, "", "", "log", "*", "a/log")
	a.Namespace, a.Name = pick(c, "", "n1", "n2", "n3"), pick(c, "", "x", "x", "y")
	return a
}
