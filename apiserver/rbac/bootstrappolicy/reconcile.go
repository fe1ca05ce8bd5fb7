package bootstrappolicy

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver/rbac"
)

// A Change is a write that makes one object as it is wanted.
type Change struct {
	Operation Operation
	Object    Object // the object to write; shares memory with the wanted one
}

// An Object is of one of the four kinds of RBAC.
type Object interface {
	metav1.Object
	runtime.Object
}

// An Operation says how to write an object.
type Operation string

// The operations. Recreate means to delete the object with the same name first: it is a binding
// whose role is not the wanted one, which cannot be changed.
const (
	Create   Operation = "create"
	Update   Operation = "update"
	Recreate Operation = "recreate"
)

// Reconcile returns the changes after which existing has all that wanted has: cluster roles first, then
// their bindings, roles and their bindings. The rules are upstream's: missing parts are added (labels,
// annotations, rules, selectors of aggregated roles, subjects), and other parts stay. An object
// with the annotation rbac.authorization.kubernetes.io/autoupdate=false is left alone. The arguments are
// not changed.
func Reconcile(existing, wanted rbac.Objects) []Change {
	return slices.Concat(
		reconcile(existing.ClusterRoles, wanted.ClusterRoles, clusterRole),
		reconcile(existing.ClusterRoleBindings, wanted.ClusterRoleBindings, clusterRoleBinding),
		reconcile(existing.Roles, wanted.Roles, role),
		reconcile(existing.RoleBindings, wanted.RoleBindings, roleBinding),
	)
}

// object is a pointer to one of the four kinds.
type object[T any] interface {
	*T
	Object
	DeepCopy() *T
}

// reconcile compares the objects of one kind. merge adds to obj its missing parts and reports how it
// differed; it may replace fields of obj, but not change what they refer to. At most starts nothing
// differs, so that nothing is copied.
func reconcile[T any, P object[T]](existing, wanted []T, merge func(obj, wanted P) difference) (changes []Change) {
	type key struct{ namespace, name string }
	have := map[key]P{}
	for i := range existing {
		p := P(&existing[i])
		have[key{p.GetNamespace(), p.GetName()}] = p
	}
	for i := range wanted {
		want := P(&wanted[i])
		old := have[key{want.GetNamespace(), want.GetName()}]
		switch {
		case old == nil:
			changes = append(changes, Change{Create, P(want.DeepCopy())})
			continue
		case old.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false":
			continue
		}
		merged := *old
		obj := P(&merged)
		annotations, annotated := with(want.GetAnnotations(), obj.GetAnnotations())
		labels, labeled := with(want.GetLabels(), obj.GetLabels())
		obj.SetAnnotations(annotations)
		obj.SetLabels(labels)
		switch d := merge(obj, want); {
		case d == otherRole:
			changes = append(changes, Change{Recreate, P(want.DeepCopy())})
		case d == lacking || annotated || labeled:
			changes = append(changes, Change{Update, P(obj.DeepCopy())})
		}
	}
	return changes
}

// A difference is how a stored object differed from the wanted one.
type difference int

const (
	none      difference = iota
	lacking              // missing parts were added
	otherRole            // it is a binding of another role, which cannot be changed
)

func lack(differs bool) difference {
	if differs {
		return lacking
	}
	return none
}

// with returns what is in base or over, and whether over lacks any of it; over prevails.
func with(base, over map[string]string) (all map[string]string, lacks bool) {
	for k := range base {
		if _, ok := over[k]; !ok {
			all = maps.Clone(base)
			maps.Copy(all, over)
			return all, true
		}
	}
	return over, false
}

// addRules returns rules with those added that they do not cover.
func addRules(rules, wanted []rbacv1.PolicyRule) ([]rbacv1.PolicyRule, bool) {
	missing := rbac.Missing(rules, wanted)
	return append(slices.Clip(rules), missing...), len(missing) > 0
}

func clusterRole(obj, wanted *rbacv1.ClusterRole) difference {
	var rules, selectors bool
	obj.Rules, rules = addRules(obj.Rules, wanted.Rules)
	obj.AggregationRule, selectors = aggregation(obj.AggregationRule, wanted.AggregationRule)
	return lack(rules || selectors)
}

// aggregation returns the selectors of both, or nil if none are wanted, and whether that differs from rule.
func aggregation(rule, wanted *rbacv1.AggregationRule) (_ *rbacv1.AggregationRule, differs bool) {
	if wanted == nil || rule == nil {
		return wanted, rule != wanted
	}
	all := slices.Clip(rule.ClusterRoleSelectors)
	for _, s := range wanted.ClusterRoleSelectors {
		if !slices.ContainsFunc(all, func(h metav1.LabelSelector) bool { return equality.Semantic.DeepEqual(h, s) }) {
			all = append(all, s)
		}
	}
	return &rbacv1.AggregationRule{ClusterRoleSelectors: all}, len(all) > len(rule.ClusterRoleSelectors)
}

func role(obj, wanted *rbacv1.Role) difference {
	var differs bool
	obj.Rules, differs = addRules(obj.Rules, wanted.Rules)
	return lack(differs)
}

func clusterRoleBinding(obj, wanted *rbacv1.ClusterRoleBinding) difference {
	if obj.RoleRef != wanted.RoleRef {
		return otherRole
	}
	var differs bool
	obj.Subjects, differs = union(obj.Subjects, wanted.Subjects)
	return lack(differs)
}

func roleBinding(obj, wanted *rbacv1.RoleBinding) difference {
	if obj.RoleRef != wanted.RoleRef {
		return otherRole
	}
	var differs bool
	obj.Subjects, differs = union(obj.Subjects, wanted.Subjects)
	return lack(differs)
}

func union(subjects, more []rbacv1.Subject) (all []rbacv1.Subject, differs bool) {
	all = slices.Clip(subjects)
	for _, s := range more {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all, len(all) > len(subjects)
}
