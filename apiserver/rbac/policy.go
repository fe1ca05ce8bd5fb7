package rbac

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// Objects are RBAC objects of all four kinds.
type Objects struct {
	ClusterRoles        []rbacv1.ClusterRole        `json:"clusterRoles,omitempty"`
	ClusterRoleBindings []rbacv1.ClusterRoleBinding `json:"clusterRoleBindings,omitempty"`
	Roles               []rbacv1.Role               `json:"roles,omitempty"`
	RoleBindings        []rbacv1.RoleBinding        `json:"roleBindings,omitempty"`
}

// Add adds a copy of an object of one of the four kinds; others are ignored.
func (o *Objects) Add(obj any) {
	switch obj := obj.(type) {
	case *rbacv1.ClusterRole:
		o.ClusterRoles = append(o.ClusterRoles, *obj)
	case *rbacv1.Role:
		o.Roles = append(o.Roles, *obj)
	case *rbacv1.ClusterRoleBinding:
		o.ClusterRoleBindings = append(o.ClusterRoleBindings, *obj)
	case *rbacv1.RoleBinding:
		o.RoleBindings = append(o.RoleBindings, *obj)
	}
}

// A Policy is an index of RBAC objects by subject and namespace. It is safe for concurrent use.
// Authorize and RulesFor do not block: a change of a binding makes a new version of the index, which
// shares the unchanged parts with the previous one, so they see a binding either before or after a
// change. A change of a role replaces one pointer, even if many bindings refer to the role.
//
// Objects that are passed to a Policy must not be changed afterwards.
type Policy struct {
	seed  maphash.Seed
	index atomic.Pointer[index] // what readers use; not changed after it is stored

	mu       sync.Mutex // guards the rest, which only writers use
	next     index
	own      [shards]bool // whether the shard of next is not in the stored index
	roles    map[roleKey]*role
	bindings map[bindingKey]*binding
}

// An index has the grants of each place, in the order of the names of their bindings.
type index [shards]map[place][]*grant

// shards is how many maps an index consists of. A change copies one map for each subject, and the list
// of the maps: with 10,000 bindings both have about the same size.
const shards = 256

// A place is a user or group in one namespace, or everywhere if the namespace is empty. A service
// account is the user that it authenticates as.
type place struct {
	name      string
	group     bool
	namespace string
}

// A grant is the role of one binding at one place.
type grant struct {
	binding string
	role    *role
	reason  string // composed in advance, so that allowing does not allocate
}

// A role is what a binding refers to. It exists as long as there is an object, or a binding to it.
type role struct {
	roleKey
	rules    atomic.Pointer[[]rbacv1.PolicyRule] // nil if there is no such object
	bindings int                                 // how many refer to it; only writers use it
}

type roleKey struct{ kind, namespace, name string }

type bindingKey struct{ namespace, name string }

type binding struct {
	ref      rbacv1.RoleRef
	subjects []rbacv1.Subject
	role     *role
}

// NewPolicy returns a policy of these objects.
func NewPolicy(o Objects) *Policy {
	p := &Policy{
		seed:     maphash.MakeSeed(),
		roles:    map[roleKey]*role{},
		bindings: map[bindingKey]*binding{},
	}
	for i := range o.ClusterRoles {
		p.SetClusterRole(&o.ClusterRoles[i])
	}
	for i := range o.Roles {
		p.SetRole(&o.Roles[i])
	}
	for i := range o.ClusterRoleBindings {
		b := &o.ClusterRoleBindings[i]
		p.bind(bindingKey{"", b.Name}, &binding{ref: b.RoleRef, subjects: b.Subjects})
	}
	for i := range o.RoleBindings {
		b := &o.RoleBindings[i]
		p.bind(bindingKey{b.Namespace, b.Name}, &binding{ref: b.RoleRef, subjects: b.Subjects})
	}
	p.publish()
	return p
}

// Set adds or replaces an object of one of the four kinds. Others are ignored.
func (p *Policy) Set(obj runtime.Object) {
	switch obj := obj.(type) {
	case *rbacv1.ClusterRole:
		p.SetClusterRole(obj)
	case *rbacv1.Role:
		p.SetRole(obj)
	case *rbacv1.ClusterRoleBinding:
		p.SetClusterRoleBinding(obj)
	case *rbacv1.RoleBinding:
		p.SetRoleBinding(obj)
	}
}

// Remove removes the object of this kind and name. Others are ignored.
func (p *Policy) Remove(obj runtime.Object) {
	switch obj := obj.(type) {
	case *rbacv1.ClusterRole:
		p.RemoveClusterRole(obj.Name)
	case *rbacv1.Role:
		p.RemoveRole(obj.Namespace, obj.Name)
	case *rbacv1.ClusterRoleBinding:
		p.RemoveClusterRoleBinding(obj.Name)
	case *rbacv1.RoleBinding:
		p.RemoveRoleBinding(obj.Namespace, obj.Name)
	}
}

// SetClusterRole adds or replaces a cluster role.
func (p *Policy) SetClusterRole(r *rbacv1.ClusterRole) {
	p.setRole(roleKey{"ClusterRole", "", r.Name}, &r.Rules)
}

// RemoveClusterRole removes a cluster role. Its bindings grant nothing until it is added again.
func (p *Policy) RemoveClusterRole(name string) { p.setRole(roleKey{"ClusterRole", "", name}, nil) }

// SetRole adds or replaces a role.
func (p *Policy) SetRole(r *rbacv1.Role) { p.setRole(roleKey{"Role", r.Namespace, r.Name}, &r.Rules) }

// RemoveRole removes a role. Its bindings grant nothing until it is added again.
func (p *Policy) RemoveRole(namespace, name string) {
	p.setRole(roleKey{"Role", namespace, name}, nil)
}

// SetClusterRoleBinding adds or replaces a cluster role binding.
func (p *Policy) SetClusterRoleBinding(b *rbacv1.ClusterRoleBinding) {
	p.setBinding(bindingKey{"", b.Name}, &binding{ref: b.RoleRef, subjects: b.Subjects})
}

// RemoveClusterRoleBinding removes a cluster role binding.
func (p *Policy) RemoveClusterRoleBinding(name string) { p.setBinding(bindingKey{"", name}, nil) }

// SetRoleBinding adds or replaces a role binding.
func (p *Policy) SetRoleBinding(b *rbacv1.RoleBinding) {
	p.setBinding(bindingKey{b.Namespace, b.Name}, &binding{ref: b.RoleRef, subjects: b.Subjects})
}

// RemoveRoleBinding removes a role binding.
func (p *Policy) RemoveRoleBinding(namespace, name string) {
	p.setBinding(bindingKey{namespace, name}, nil)
}

func (p *Policy) setRole(k roleKey, rules *[]rbacv1.PolicyRule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.role(k)
	r.rules.Store(rules)
	p.release(r)
}

// role returns the role with this key, and makes it if there is none.
func (p *Policy) role(k roleKey) *role {
	r := p.roles[k]
	if r == nil {
		r = &role{roleKey: k}
		p.roles[k] = r
	}
	return r
}

// release forgets a role that does not exist and that no binding refers to.
func (p *Policy) release(r *role) {
	if r.bindings == 0 && r.rules.Load() == nil {
		delete(p.roles, r.roleKey)
	}
}

func (p *Policy) setBinding(k bindingKey, b *binding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bind(k, b) {
		p.publish()
	}
}

// publish makes the next index visible to readers.
func (p *Policy) publish() {
	p.index.Store(new(p.next))
	p.own = [shards]bool{}
}

// bind replaces a binding in the next index, or removes it if b is nil, and reports whether that
// changed anything.
func (p *Policy) bind(k bindingKey, b *binding) bool {
	old := p.bindings[k]
	if old == nil && b == nil || old != nil && b != nil && old.ref == b.ref && slices.Equal(old.subjects, b.subjects) {
		return false
	}
	if old != nil {
		for i := range old.subjects {
			if at, _, ok := where(&old.subjects[i], k.namespace); ok {
				p.replace(at, k.name, nil)
			}
		}
		old.role.bindings--
	}
	if b != nil {
		b.role = p.role(roleOf(b.ref, k.namespace))
		b.role.bindings++
		p.add(k, b)
		p.bindings[k] = b
	} else {
		delete(p.bindings, k)
	}
	if old != nil {
		p.release(old.role)
	}
	return true
}

// add adds the grants of a binding. Its last subject comes first, so that of equal subjects the first
// remains.
func (p *Policy) add(k bindingKey, b *binding) {
	kind, name := "ClusterRoleBinding", k.name
	if k.namespace != "" {
		kind, name = "RoleBinding", k.name+"/"+k.namespace
	}
	for i := len(b.subjects) - 1; i >= 0; i-- {
		at, shown, ok := where(&b.subjects[i], k.namespace)
		if !ok {
			continue
		}
		p.replace(at, k.name, &grant{
			binding: k.name,
			role:    b.role,
			reason:  fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s %q", kind, name, b.ref.Kind, b.ref.Name, b.subjects[i].Kind, shown),
		})
	}
}

// replace replaces the grant of a binding at a place, or removes it if g is nil.
func (p *Policy) replace(at place, binding string, g *grant) {
	n := p.shard(at)
	if !p.own[n] {
		p.own[n] = true
		p.next[n] = maps.Clone(p.next[n])
	}
	if p.next[n] == nil {
		p.next[n] = map[place][]*grant{}
	}
	old := p.next[n][at]
	i, found := slices.BinarySearchFunc(old, binding, func(g *grant, name string) int { return cmp.Compare(g.binding, name) })
	grants := append(make([]*grant, 0, len(old)+1), old[:i]...)
	if g != nil {
		grants = append(grants, g)
	}
	if found {
		i++
	}
	if grants = append(grants, old[i:]...); len(grants) == 0 {
		delete(p.next[n], at)
		return
	}
	p.next[n][at] = grants
}

func (p *Policy) shard(at place) int { return int(maphash.Comparable(p.seed, at) % shards) }

// roleOf returns the role that a binding in a namespace refers to.
func roleOf(ref rbacv1.RoleRef, namespace string) roleKey {
	if ref.Kind == "ClusterRole" {
		namespace = ""
	}
	return roleKey{ref.Kind, namespace, ref.Name}
}

// where returns the place at which a subject of a binding in a namespace has its grant, and how
// Kubernetes shows the subject.
func where(s *rbacv1.Subject, namespace string) (at place, shown string, ok bool) {
	switch s.Kind {
	case rbacv1.UserKind:
		return place{s.Name, false, namespace}, s.Name, true
	case rbacv1.GroupKind:
		return place{s.Name, true, namespace}, s.Name, true
	case rbacv1.ServiceAccountKind:
		of := cmp.Or(s.Namespace, namespace)
		return place{auth.ServiceAccountUser(of, s.Name), false, namespace}, s.Name + "/" + of, of != ""
	}
	return place{}, "", false
}

// Authorize returns whether the policy allows a request. A request across all namespaces is allowed
// by cluster role bindings only. The reason of a refusal names the roles that bindings of the user
// refer to and that do not exist.
func (p *Policy) Authorize(a *Attributes) Decision {
	x := p.index.Load()
	dangling := false
	d := p.authorizeIn(x, "", a, &dangling)
	if !d.Allowed && a.Namespace != "" {
		d = p.authorizeIn(x, a.Namespace, a, &dangling)
	}
	if !d.Allowed && dangling {
		_, missing := p.collect(a.User, a.Namespace)
		d.Reason = fmt.Sprintf("RBAC: %v", notFound(missing, ""))
	}
	return d
}

// authorizeIn decides by the bindings of one namespace, or by the cluster role bindings if it is empty.
// It sets dangling if one of them refers to a role that does not exist.
func (p *Policy) authorizeIn(x *index, namespace string, a *Attributes, dangling *bool) Decision {
	d := p.authorize(x, place{a.User.Name, false, namespace}, a, dangling)
	for i := 0; i < len(a.User.Groups) && !d.Allowed; i++ {
		d = p.authorize(x, place{a.User.Groups[i], true, namespace}, a, dangling)
	}
	return d
}

func (p *Policy) authorize(x *index, at place, a *Attributes, dangling *bool) Decision {
	for _, g := range x[p.shard(at)][at] {
		rules := g.role.rules.Load()
		if rules == nil {
			*dangling = true
		} else if Allow(*rules, a) {
			return Decision{Allowed: true, Reason: g.reason}
		}
	}
	return Decision{}
}

// RulesFor returns the rules that a user has everywhere and, if namespace is not empty, in the
// namespace. If roles that the bindings refer to do not exist, it returns an error that names them,
// and the rules of the other roles. The rules must not be changed.
func (p *Policy) RulesFor(user *auth.User, namespace string) ([]rbacv1.PolicyRule, error) {
	rules, missing := p.collect(user, namespace)
	return rules, notFound(missing, "")
}

// collect returns the rules of a user, and the roles that its bindings refer to and that do not exist.
// A role counts once, whatever the number of bindings that refer to it.
func (p *Policy) collect(user *auth.User, namespace string) (rules []rbacv1.PolicyRule, missing []*role) {
	x := p.index.Load()
	seen := map[*role]bool{}
	visit := func(at place) {
		for _, g := range x[p.shard(at)][at] {
			if seen[g.role] {
				continue
			}
			seen[g.role] = true
			if r := g.role.rules.Load(); r != nil {
				rules = append(rules, *r...)
			} else {
				missing = append(missing, g.role)
			}
		}
	}
	for _, namespace := range slices.Compact([]string{"", namespace}) {
		visit(place{user.Name, false, namespace})
		for _, g := range user.Groups {
			visit(place{g, true, namespace})
		}
	}
	return rules, missing
}

// rulesOf returns the rules of the role that a binding in a namespace refers to. An error has the
// words and the code of Kubernetes.
func (p *Policy) rulesOf(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := roleOf(ref, namespace)
	if r := p.roles[k]; r != nil {
		if rules := r.rules.Load(); rules != nil {
			return *rules, nil
		}
	}
	return nil, k.notFound("s")
}

// mostNotFound is how many missing roles an error names.
const mostNotFound = 100

// notFound returns an error that names roles which do not exist, or nil if there are none.
func notFound(missing []*role, plural string) error {
	errs := make([]error, 0, min(len(missing), mostNotFound+1))
	for i, r := range missing {
		if i == mostNotFound {
			errs = append(errs, fmt.Errorf("%d more roles not found", len(missing)-i))
			break
		}
		errs = append(errs, r.notFound(plural))
	}
	return utilerrors.NewAggregate(errs)
}

// notFound returns the error of Kubernetes for a role that does not exist. Its authorizer names the
// resource in the singular, its check of writes in the plural.
func (k roleKey) notFound(plural string) error {
	switch k.kind {
	case "ClusterRole":
		return apierrors.NewNotFound(rbacv1.Resource("clusterrole"+plural), k.name)
	case "Role":
		return apierrors.NewNotFound(rbacv1.Resource("role"+plural), k.name)
	}
	return apierrors.NewBadRequest(fmt.Sprintf("unsupported role reference kind: %q", k.kind))
}
