package rbac_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
)

// slow evaluates RBAC objects without an index, directly after the definition of the API.
type slow struct {
	clusterRoles        map[string]*rbacv1.ClusterRole
	roles               map[[2]string]*rbacv1.Role
	clusterRoleBindings map[string]*rbacv1.ClusterRoleBinding
	roleBindings        map[[2]string]*rbacv1.RoleBinding
}

// granted is what the bindings give to a user.
type granted struct {
	rules   []rbacv1.PolicyRule
	reasons map[string]bool // that may be given if one of the rules allows a request
	missing map[string]bool // errors
}

func (s *slow) granted(u *auth.User, namespace string, may func([]rbacv1.PolicyRule) bool) granted {
	g := granted{reasons: map[string]bool{}, missing: map[string]bool{}}
	seen := map[string]bool{} // a role counts once
	roleKey := func(ref rbacv1.RoleRef, in string) string {
		if ref.Kind == "ClusterRole" {
			in = ""
		}
		return ref.Kind + "/" + in + "/" + ref.Name
	}
	look := func(kind, name, in string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		var to []string
		for _, subject := range subjects {
			of, shown := subject.Name, subject.Name
			if subject.Kind == rbacv1.ServiceAccountKind {
				at := cmp.Or(subject.Namespace, in)
				of, shown = "system:serviceaccount:"+at+":"+subject.Name, subject.Name+"/"+at
			}
			if subject.Kind == rbacv1.GroupKind && slices.Contains(u.Groups, of) || subject.Kind != rbacv1.GroupKind && u.Name == of {
				to = append(to, fmt.Sprintf("%s %q", subject.Kind, shown))
			}
		}
		if len(to) == 0 {
			return
		}
		var rules []rbacv1.PolicyRule
		if r, ok := s.roles[[2]string{in, ref.Name}]; ref.Kind == "Role" && ok {
			rules = r.Rules
		} else if r, ok := s.clusterRoles[ref.Name]; ref.Kind == "ClusterRole" && ok {
			rules = r.Rules
		} else {
			g.missing[fmt.Sprintf("%s.rbac.authorization.k8s.io %q not found", strings.ToLower(ref.Kind), ref.Name)] = true
		}
		if of := roleKey(ref, in); !seen[of] {
			seen[of] = true
			g.rules = append(g.rules, rules...)
		}
		if may(rules) {
			for _, t := range to {
				g.reasons[fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s", kind, name, ref.Kind, ref.Name, t)] = true
			}
		}
	}
	for _, b := range s.clusterRoleBindings {
		look("ClusterRoleBinding", b.Name, "", b.RoleRef, b.Subjects)
	}
	for _, b := range s.roleBindings {
		if b.Namespace == namespace {
			look("RoleBinding", b.Name+"/"+b.Namespace, b.Namespace, b.RoleRef, b.Subjects)
		}
	}
	return g
}

// chance picks small values, so that they often meet.
type chance struct{ *rand.Rand }

func pick[T any](c chance, from ...T) T { return from[c.IntN(len(from))] }

func some[T any](c chance, from ...T) []T {
	var list []T
	for range 1 + c.IntN(2) {
		list = append(list, pick(c, from...))
	}
	return list
}

func (c chance) rules() (rules []rbacv1.PolicyRule) {
	for range c.IntN(6) {
		r := rbacv1.PolicyRule{Verbs: some(c, "get", "list", "create", "*")}
		if c.IntN(4) == 0 {
			r.NonResourceURLs = some(c, "/version", "/apis/*", "/healthz", "*")
		} else {
			r.APIGroups, r.Resources = some(c, "", "apps", "*"), some(c, "pods", "pods/log", "*/log", "deployments", "*")
			if c.IntN(3) == 0 {
				r.ResourceNames = some(c, "x", "y")
			}
		}
		rules = append(rules, r)
	}
	return rules
}

func (c chance) subjects() (subjects []rbacv1.Subject) {
	for range c.IntN(4) {
		s := rbacv1.Subject{Kind: pick(c, "User", "Group", "ServiceAccount"), Name: pick(c, "a", "b", "c")}
		if s.Kind == "ServiceAccount" {
			s.Namespace = pick(c, "", "n1", "n2")
		} else if c.IntN(8) == 0 {
			s.Name = "system:serviceaccount:n1:a"
		}
		subjects = append(subjects, s)
	}
	return subjects
}

// change makes the same random change to both.
func (c chance) change(p *rbac.Policy, s *slow) {
	name, namespace := pick(c, "r1", "r2", "r3", "r4"), pick(c, "n1", "n2")
	key, remove := [2]string{namespace, name}, c.IntN(4) == 0
	meta := metav1.ObjectMeta{Name: name}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: pick(c, "r1", "r2", "r3", "r4")}
	switch c.IntN(4) {
	case 0:
		if remove {
			p.RemoveClusterRole(name)
			delete(s.clusterRoles, name)
			return
		}
		s.clusterRoles[name] = &rbacv1.ClusterRole{ObjectMeta: meta, Rules: c.rules()}
		p.SetClusterRole(s.clusterRoles[name])
	case 1:
		if remove {
			p.RemoveRole(namespace, name)
			delete(s.roles, key)
			return
		}
		meta.Namespace = namespace
		s.roles[key] = &rbacv1.Role{ObjectMeta: meta, Rules: c.rules()}
		p.SetRole(s.roles[key])
	case 2:
		if remove {
			p.RemoveClusterRoleBinding(name)
			delete(s.clusterRoleBindings, name)
			return
		}
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: c.subjects()}
		b.Subjects = slices.DeleteFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Kind == "ServiceAccount" && s.Namespace == "" })
		s.clusterRoleBindings[name] = b
		p.SetClusterRoleBinding(b)
	case 3:
		if remove {
			p.RemoveRoleBinding(namespace, name)
			delete(s.roleBindings, key)
			return
		}
		meta.Namespace = namespace
		ref.Kind = pick(c, "Role", "ClusterRole")
		s.roleBindings[key] = &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: c.subjects()}
		p.SetRoleBinding(s.roleBindings[key])
	}
}

func (c chance) request() rbac.Attributes {
	a := rbac.Attributes{
		User: &auth.User{Name: pick(c, "a", "b", "c", "system:serviceaccount:n1:a", "system:serviceaccount:n2:b"), Groups: some(c, "a", "b", "d")},
		Verb: pick(c, "get", "list", "create"),
	}
	if c.IntN(4) == 0 {
		a.Path = pick(c, "/version", "/apis", "/apis/apps", "/metrics")
		return a
	}
	a.Group, a.Resource, a.Subresource = pick(c, "", "apps", "batch"), pick(c, "pods", "deployments", "jobs"), pick(c, "", "", "log", "scale")
	a.Namespace, a.Name = pick(c, "", "n1", "n2", "n3"), pick(c, "", "x", "y")
	return a
}

// TestPolicyIsWhatTheObjectsSay compares the index with the slow evaluation, after each of many
// random changes.
func TestPolicyIsWhatTheObjectsSay(t *testing.T) {
	requests, allowed := 0, 0
	for seed := range uint64(40) {
		c := chance{rand.New(rand.NewPCG(seed, 1))}
		p := rbac.NewPolicy(rbac.Objects{})
		s := &slow{map[string]*rbacv1.ClusterRole{}, map[[2]string]*rbacv1.Role{}, map[string]*rbacv1.ClusterRoleBinding{}, map[[2]string]*rbacv1.RoleBinding{}}
		for range 300 {
			c.change(p, s)
			a := c.request()
			g := s.granted(a.User, a.Namespace, func(rules []rbacv1.PolicyRule) bool { return rbac.Allow(rules, &a) })
			d := p.Authorize(&a)
			requests++
			if d.Allowed {
				allowed++
			}
			if d.Allowed != (len(g.reasons) > 0) || d.Allowed && !g.reasons[d.Reason] || !d.Allowed && !sayMissing(d.Reason, g.missing) {
				t.Fatalf("seed %d: Authorize(%+v) = %+v, want one of %q or the errors %q", seed, a, d, slices.Collect(maps.Keys(g.reasons)), slices.Collect(maps.Keys(g.missing)))
			}
			rules, err := p.RulesFor(a.User, a.Namespace)
			if !sameRules(rules, g.rules) || (err != nil) != (len(g.missing) > 0) {
				t.Fatalf("seed %d: RulesFor(%+v, %q) = %v, %v, want %v", seed, a.User, a.Namespace, rules, err, g.rules)
			}
		}
	}
	if allowed < requests/10 || allowed > requests*9/10 {
		t.Errorf("%d of %d requests were allowed, which tests little", allowed, requests)
	}
}

func sayMissing(reason string, missing map[string]bool) bool {
	for m := range missing {
		if !strings.Contains(reason, m) {
			return false
		}
	}
	return (reason == "") == (len(missing) == 0)
}

func sameRules(a, b []rbacv1.PolicyRule) bool {
	text := func(rules []rbacv1.PolicyRule) (lines []string) {
		for _, r := range rules {
			lines = append(lines, r.String())
		}
		slices.Sort(lines)
		return lines
	}
	return slices.Equal(text(a), text(b))
}

// TestReadersSeeWholeChanges reads while a binding moves between two users, under the race detector.
func TestReadersSeeWholeChanges(t *testing.T) {
	p := rbac.NewPolicy(large(100))
	binding := func(names ...string) *rbacv1.ClusterRoleBinding {
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "both"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view-3"}}
		for _, n := range names {
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "User", Name: n})
		}
		return b
	}
	p.SetClusterRoleBinding(binding("jane", "joe"))
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				a := rbac.Attributes{User: &auth.User{Name: "other", Groups: []string{"g"}}, Verb: "get", Resource: "pods", Namespace: "ns-1"}
				if d := p.Authorize(&a); d.Allowed {
					t.Errorf("Authorize = %+v", d)
				}
				a.User = &auth.User{Name: "joe"}
				if d := p.Authorize(&a); !d.Allowed {
					t.Error("joe lost the binding")
					return
				}
			}
		})
	}
	for i := range 1000 {
		p.SetClusterRoleBinding(binding("joe", "x"+strconv.Itoa(i)))
		p.SetClusterRole(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view-3"}, Rules: view})
	}
	close(done)
	readers.Wait()
}

var view = []rbacv1.PolicyRule{
	{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"apps"}, Resources: []string{"deployments", "replicasets", "statefulsets"}},
	{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"configmaps", "pods/log", "pods", "services"}},
}

// large returns objects with n bindings: half of them bind users and service accounts in namespaces, a
// quarter binds groups in namespaces, and a quarter binds users everywhere.
func large(n int) rbac.Objects {
	var o rbac.Objects
	for i := range 20 {
		o.ClusterRoles = append(o.ClusterRoles, rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view-" + strconv.Itoa(i)}, Rules: view})
	}
	for i := range n {
		ref := rbacv1.RoleRef{Kind: "ClusterRole", Name: "view-" + strconv.Itoa(i%20)}
		namespace := "ns-" + strconv.Itoa(i/10)
		meta := metav1.ObjectMeta{Name: "binding-" + strconv.Itoa(i)}
		subjects := []rbacv1.Subject{{Kind: "User", Name: "user-" + strconv.Itoa(i)}}
		if i%4 == 0 {
			o.ClusterRoleBindings = append(o.ClusterRoleBindings, rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
			continue
		}
		meta.Namespace = namespace
		switch i % 4 {
		case 1:
			subjects = append(subjects, rbacv1.Subject{Kind: "ServiceAccount", Name: "default"})
		case 2:
			subjects = []rbacv1.Subject{{Kind: "Group", Name: "team-" + strconv.Itoa(i%50)}}
		}
		o.RoleBindings = append(o.RoleBindings, rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
	}
	return o
}

func BenchmarkPolicy(b *testing.B) {
	const bindings = 10_000
	p := rbac.NewPolicy(large(bindings))
	account := &auth.User{
		Name:   "system:serviceaccount:ns-500:default",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns-500", "system:authenticated"},
	}
	member := &auth.User{Name: "user-x", Groups: []string{"team-2", "team-6", "team-10", "system:authenticated"}}
	for name, a := range map[string]rbac.Attributes{
		"allow/service-account": {User: account, Verb: "get", Resource: "pods", Namespace: "ns-500", Name: "x"},
		"allow/group":           {User: member, Verb: "get", Resource: "pods", Namespace: "ns-1", Name: "x"},
		"deny/service-account":  {User: account, Verb: "delete", Resource: "pods", Namespace: "ns-500", Name: "x"},
		"deny/group":            {User: member, Verb: "delete", Resource: "pods", Namespace: "ns-501", Name: "x"},
	} {
		b.Run(name, func(b *testing.B) {
			if d := p.Authorize(&a); d.Allowed != strings.HasPrefix(name, "allow") {
				b.Fatalf("Authorize = %+v", d)
			}
			b.ReportAllocs()
			for b.Loop() {
				p.Authorize(&a)
			}
		})
	}
	b.Run("change-binding", func(b *testing.B) {
		b.ReportAllocs()
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns-7", Name: "new"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view-1"}}
		for i := range b.N {
			with := *binding
			with.Subjects = []rbacv1.Subject{{Kind: "User", Name: pickName[i%2]}}
			p.SetRoleBinding(&with)
		}
	})
	b.Run("change-role", func(b *testing.B) {
		r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view-1"}, Rules: view}
		for b.Loop() {
			p.SetClusterRole(r)
		}
	})
	b.Run("load", func(b *testing.B) {
		o := large(bindings)
		for b.Loop() {
			rbac.NewPolicy(o)
		}
	})
}

var pickName = [2]string{"jane", "joe"}
