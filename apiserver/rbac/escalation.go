package rbac

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// A Grantor is a user who writes roles or bindings. Its methods check a creation or an update: a user
// can grant only what the user has, unless the verb escalate on the role, or bind on the role that a
// binding refers to, is allowed. They return nil or a status error in the words of Kubernetes. Call them
// with the object as it will be stored, whichever verb writes it; old is nil for a creation.
type Grantor struct {
	Policy *Policy
	User   *auth.User

	// Name is the name in the URL of the request: empty for a creation by POST.
	Name string

	// Allowed reports the decision of the server's authorizer about a request. It must not block.
	Allowed func(Attributes) bool
}

// everything is what cluster-admin has.
var everything = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

// ClusterRole checks the write of a cluster role. An aggregation rule may collect anything, so only a
// user who has everything may write an object with one, or change one that had it.
func (g Grantor) ClusterRole(ctx context.Context, r, old *rbacv1.ClusterRole) error {
	if g.mayEscalate("clusterroles", "") || old != nil && onlyCollected(r.DeepCopy(), old) {
		return nil
	}
	resource := rbacv1.Resource("clusterroles")
	if err := g.Policy.ConfirmNoEscalation(ctx, g.User, "", r.Rules); err != nil {
		return apierrors.NewForbidden(resource, r.Name, err)
	}
	if (aggregates(r) || old != nil && aggregates(old)) && g.Policy.ConfirmNoEscalation(ctx, g.User, "", everything) != nil {
		return apierrors.NewForbidden(resource, r.Name, errors.New("must have cluster-admin privileges to use the aggregationRule"))
	}
	return nil
}

func aggregates(r *rbacv1.ClusterRole) bool {
	return r.AggregationRule != nil && len(r.AggregationRule.ClusterRoleSelectors) > 0
}

// Role checks the write of a role.
func (g Grantor) Role(ctx context.Context, r, old *rbacv1.Role) error {
	if g.mayEscalate("roles", r.Namespace) || old != nil && onlyCollected(r.DeepCopy(), old) {
		return nil
	}
	if err := g.Policy.ConfirmNoEscalation(ctx, g.User, r.Namespace, r.Rules); err != nil {
		return apierrors.NewForbidden(rbacv1.Resource("roles"), r.Name, err)
	}
	return nil
}

// ClusterRoleBinding checks the write of a cluster role binding.
func (g Grantor) ClusterRoleBinding(ctx context.Context, b, old *rbacv1.ClusterRoleBinding) error {
	if old != nil && onlyCollected(b.DeepCopy(), old) {
		return nil
	}
	return g.binding(ctx, "clusterrolebindings", "", b.Name, b.RoleRef)
}

// RoleBinding checks the write of a role binding.
func (g Grantor) RoleBinding(ctx context.Context, b, old *rbacv1.RoleBinding) error {
	if old != nil && onlyCollected(b.DeepCopy(), old) {
		return nil
	}
	return g.binding(ctx, "rolebindings", b.Namespace, b.Name, b.RoleRef)
}

func (g Grantor) binding(ctx context.Context, resource, namespace, name string, ref rbacv1.RoleRef) error {
	if g.User.In(auth.GroupMasters) || g.mayBind(ref, namespace) {
		return nil
	}
	rules, err := g.Policy.rulesOf(ref, namespace)
	if err != nil {
		return err
	}
	if err := g.Policy.ConfirmNoEscalation(ctx, g.User, namespace, rules); err != nil {
		return apierrors.NewForbidden(rbacv1.Resource(resource), name, err)
	}
	return nil
}

func (g Grantor) mayEscalate(resource, namespace string) bool {
	return g.User.In(auth.GroupMasters) || g.Allowed(Attributes{
		User: g.User, Verb: "escalate", Group: rbacv1.GroupName, Version: "*", Resource: resource, Namespace: namespace, Name: g.Name,
	})
}

func (g Grantor) mayBind(ref rbacv1.RoleRef, namespace string) bool {
	resource, ok := map[string]string{"ClusterRole": "clusterroles", "Role": "roles"}[ref.Kind]
	return ok && g.Allowed(Attributes{
		User: g.User, Verb: "bind", Group: ref.APIGroup, Version: "*", Resource: resource, Namespace: namespace, Name: ref.Name,
	})
}

// object is the common part of the four kinds.
type object[T any] interface {
	*T
	metav1.Object
	runtime.Object
}

// onlyCollected reports whether an update changes only fields of the garbage collector. It
// changes obj.
func onlyCollected[T any, P object[T]](obj, old P) bool {
	obj.GetObjectKind().SetGroupVersionKind(old.GetObjectKind().GroupVersionKind())
	obj.SetOwnerReferences(old.GetOwnerReferences())
	obj.SetFinalizers(old.GetFinalizers())
	obj.SetManagedFields(old.GetManagedFields())
	return equality.Semantic.DeepEqual(obj, old)
}

// ConfirmNoEscalation returns an error in the words of Kubernetes unless the user has all that rules
// grant: in a namespace, or everywhere if it is empty.
//
// The error names a bounded part of the missing rules. Rules that cannot be compared in a time in proportion to their size are
// refused, and a context that is over is an error, too.
func (p *Policy) ConfirmNoEscalation(ctx context.Context, user *auth.User, namespace string, rules []rbacv1.PolicyRule) error {
	held, unresolved := p.collect(user, namespace)
	missing, more, err := lacks(ctx, held, rules)
	if len(missing) == 0 && err == nil {
		return nil
	}
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s", user.Name, user.Groups, describe(missing, more && err == nil))
	if err != nil {
		text += "\n" + err.Error()
	}
	if err := notFound(unresolved, "s"); err != nil {
		text += fmt.Sprintf("; resolution errors: %v", []error{err})
	}
	return errors.New(text)
}
