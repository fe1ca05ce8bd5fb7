package rbac

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// Objects are what a [Policy] is made of.
type Objects struct {
	ClusterRoles        []rbacv1.ClusterRole
	ClusterRoleBindings []rbacv1.ClusterRoleBinding
	Roles               []rbacv1.Role
	RoleBindings        []rbacv1.RoleBinding
}

// A Policy is RBAC objects, indexed by subject. It does not change after
// [NewPolicy] and is safe for concurrent use.
type Policy struct {
	users  map[string][]grant
	groups map[string][]grant
}

// A grant is what one binding gives to one subject.
type grant struct {
	namespace string // empty means everywhere
	rules     []rbacv1.PolicyRule
	reason    string // put together beforehand: allowing costs nothing
}

// NewPolicy returns the policy that the objects state. A binding whose role does not
// exist grants nothing, as in Kubernetes. The objects must not be changed
// afterwards.
func NewPolicy(o Objects) *Policy {
	p := &Policy{users: map[string][]grant{}, groups: map[string][]grant{}}
	cluster := map[string][]rbacv1.PolicyRule{}
	for _, r := range o.ClusterRoles {
		cluster[r.Name] = r.Rules
	}
	type key struct{ namespace, name string }
	roles := map[key][]rbacv1.PolicyRule{}
	for _, r := range o.Roles {
		roles[key{r.Namespace, r.Name}] = r.Rules
	}
	for _, b := range o.ClusterRoleBindings {
		if b.RoleRef.Kind == "ClusterRole" {
			p.add("ClusterRoleBinding", b.Name, "", b.RoleRef, cluster[b.RoleRef.Name], b.Subjects)
		}
	}
	for _, b := range o.RoleBindings {
		switch b.RoleRef.Kind {
		case "ClusterRole":
			p.add("RoleBinding", b.Name, b.Namespace, b.RoleRef, cluster[b.RoleRef.Name], b.Subjects)
		case "Role":
			p.add("RoleBinding", b.Name, b.Namespace, b.RoleRef, roles[key{b.Namespace, b.RoleRef.Name}], b.Subjects)
		}
	}
	return p
}

func (p *Policy) add(kind, name, namespace string, role rbacv1.RoleRef, rules []rbacv1.PolicyRule, subjects []rbacv1.Subject) {
	if len(rules) == 0 {
		return
	}
	if namespace != "" {
		name += "/" + namespace
	}
	for _, s := range subjects {
		index, subject, shown := p.users, s.Name, s.Name
		switch s.Kind {
		case rbacv1.UserKind:
		case rbacv1.GroupKind:
			index = p.groups
		case rbacv1.ServiceAccountKind:
			if s.Namespace == "" {
				s.Namespace = namespace
			}
			if s.Namespace == "" {
				continue
			}
			subject, shown = auth.ServiceAccountUser(s.Namespace, s.Name), s.Name+"/"+s.Namespace
		default:
			continue
		}
		index[subject] = append(index[subject], grant{
			namespace: namespace,
			rules:     rules,
			reason:    fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s %q", kind, name, role.Kind, role.Name, s.Kind, shown),
		})
	}
}

// Decide returns whether the policy allows it. A request across all namespaces
// is allowed by what holds everywhere alone.
func (p *Policy) Decide(a *Attributes) Decision {
	if d := decide(p.users[a.User.Name], a); d.Allowed {
		return d
	}
	for _, g := range a.User.Groups {
		if d := decide(p.groups[g], a); d.Allowed {
			return d
		}
	}
	return Decision{}
}

func decide(grants []grant, a *Attributes) Decision {
	for i := range grants {
		g := &grants[i]
		if (g.namespace == "" || g.namespace == a.Namespace) && Allow(g.rules, a) {
			return Decision{Allowed: true, Reason: g.reason}
		}
	}
	return Decision{}
}

// Allow reports whether any of the rules allows it. It does not look at namespaces: they belong to
// bindings, and so does the rule that paths which are not resources can only be allowed everywhere.
func Allow(rules []rbacv1.PolicyRule, a *Attributes) bool {
	for i := range rules {
		if allows(&rules[i], a) {
			return true
		}
	}
	return false
}

func allows(r *rbacv1.PolicyRule, a *Attributes) bool {
	if !has(r.Verbs, a.Verb) {
		return false
	}
	if a.Resource == "" {
		return slices.ContainsFunc(r.NonResourceURLs, func(pattern string) bool { return matchesPath(pattern, a.Path) })
	}
	return has(r.APIGroups, a.Group) &&
		slices.ContainsFunc(r.Resources, func(pattern string) bool { return matchesResource(pattern, a.Resource, a.Subresource) }) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.Name))
}

func has(list []string, s string) bool {
	for _, x := range list {
		if x == s || x == "*" {
			return true
		}
	}
	return false
}

// matchesResource knows the patterns "*", "pods", "pods/log" and "*/scale".
func matchesResource(pattern, resource, subresource string) bool {
	if pattern == "*" {
		return true
	}
	r, sub, slash := strings.Cut(pattern, "/")
	if !slash {
		return subresource == "" && r == resource
	}
	return subresource != "" && sub == subresource && (r == resource || r == "*")
}

// matchesPath knows the patterns "*", "/version" and "/apis/*".
func matchesPath(pattern, path string) bool {
	if prefix, star := strings.CutSuffix(pattern, "*"); star {
		return strings.HasPrefix(path, prefix)
	}
	return pattern == path
}
