package policy

import (
	"context"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	internal "k8s.io/kubernetes/pkg/apis/rbac"
	clusterrole "k8s.io/kubernetes/pkg/registry/rbac/clusterrole/policybased"
	clusterrolebinding "k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding/policybased"
	role "k8s.io/kubernetes/pkg/registry/rbac/role/policybased"
	rolebinding "k8s.io/kubernetes/pkg/registry/rbac/rolebinding/policybased"
	"k8s.io/kubernetes/pkg/registry/rbac/validation"

	"github.com/sampan-io/sampan/apiserver/rbac"
)

// accepting is a storage that accepts all writes that reach it. It has one object, or none.
type accepting struct {
	rest.StandardStorage
	old runtime.Object
}

func (accepting) Create(_ context.Context, obj runtime.Object, _ rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	return obj, nil
}

func (a accepting) Update(ctx context.Context, _ string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, _ rest.ValidateObjectUpdateFunc, _ bool, _ *metav1.UpdateOptions) (runtime.Object, bool, error) {
	obj, err := info.UpdatedObject(ctx, a.old)
	return obj, false, err
}

type writer interface {
	rest.Creater
	rest.Updater
}

// TestWrites compares whether users may create and update roles and bindings, and the errors.
func TestWrites(t *testing.T) {
	may, mayNot := 0, 0
	for seed := range uint64(3000) {
		c := newChance(seed)
		o := c.objects()
		if c.IntN(10) == 0 {
			o.ClusterRoles = append(o.ClusterRoles, rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r5"}, Rules: []rbacv1.PolicyRule{
				{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}, {Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
			}})
		}
		registry := stored{o, "s"}
		authorizer := stored{Objects: o}.authorizer()
		resolver := validation.NewDefaultRuleResolver(registry, registry, registry, registry)
		policy := rbac.NewPolicy(o)
		u := c.user()
		g := rbac.Grantor{Policy: policy, User: u, Allowed: func(a rbac.Attributes) bool { return policy.Authorize(&a).Allowed }}

		update, namespace := c.IntN(2) == 0, ""
		meta, oldMeta := metav1.ObjectMeta{Name: c.name()}, metav1.ObjectMeta{}
		oldMeta.Name = meta.Name
		if update {
			g.Name = meta.Name
			meta.Finalizers = some(c, 0, "a/b")
			if c.IntN(2) == 0 {
				meta.Labels = map[string]string{"a": "b"}
			}
		}
		var storage func(accepting) writer
		var obj, old runtime.Object
		var resource string
		var ours error
		switch c.IntN(4) {
		case 0:
			resource = "clusterroles"
			aggregate := func() *rbacv1.AggregationRule {
				return pick(c, nil, nil, &rbacv1.AggregationRule{}, &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}})
			}
			a := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: c.rules(), AggregationRule: aggregate()}
			b := &rbacv1.ClusterRole{ObjectMeta: oldMeta, Rules: pick(c, a.Rules, c.rules()), AggregationRule: pick(c, a.AggregationRule, aggregate())}
			obj, old, storage = a, b, func(s accepting) writer { return clusterrole.NewStorage(s, authorizer, resolver) }
			if !update {
				b = nil
			}
			ours = g.ClusterRole(t.Context(), a, b)
		case 1:
			resource, namespace = "roles", pick(c, "n1", "n2")
			meta.Namespace, oldMeta.Namespace = namespace, namespace
			a := &rbacv1.Role{ObjectMeta: meta, Rules: c.rules()}
			b := &rbacv1.Role{ObjectMeta: oldMeta, Rules: pick(c, a.Rules, c.rules())}
			obj, old, storage = a, b, func(s accepting) writer { return role.NewStorage(s, authorizer, resolver) }
			if !update {
				b = nil
			}
			ours = g.Role(t.Context(), a, b)
		case 2:
			resource = "clusterrolebindings"
			a := &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: c.ref(), Subjects: c.subjects()}
			b := &rbacv1.ClusterRoleBinding{ObjectMeta: oldMeta, RoleRef: a.RoleRef, Subjects: pick(c, a.Subjects, c.subjects())}
			obj, old, storage = a, b, func(s accepting) writer { return clusterrolebinding.NewStorage(s, authorizer, resolver) }
			if !update {
				b = nil
			}
			ours = g.ClusterRoleBinding(t.Context(), a, b)
		case 3:
			resource, namespace = "rolebindings", pick(c, "n1", "n2")
			meta.Namespace, oldMeta.Namespace = namespace, namespace
			a := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: c.ref(), Subjects: c.subjects()}
			b := &rbacv1.RoleBinding{ObjectMeta: oldMeta, RoleRef: a.RoleRef, Subjects: pick(c, a.Subjects, c.subjects())}
			obj, old, storage = a, b, func(s accepting) writer { return rolebinding.NewStorage(s, authorizer, resolver) }
			if !update {
				b = nil
			}
			ours = g.RoleBinding(t.Context(), a, b)
		}

		ctx := genericapirequest.WithUser(genericapirequest.WithNamespace(t.Context(), namespace), info(u))
		ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
			IsResourceRequest: true, APIGroup: rbacv1.GroupName, APIVersion: "v1", Resource: resource, Namespace: namespace, Name: g.Name,
		})
		var theirs error
		if update {
			_, _, theirs = storage(accepting{old: toInternal(t, old)}).Update(ctx, g.Name, rest.DefaultUpdatedObjectInfo(toInternal(t, obj)), nil, nil, false, nil)
		} else {
			_, theirs = storage(accepting{}).Create(ctx, toInternal(t, obj), nil, nil)
		}
		if !slices.Equal(lines(ours), lines(theirs)) {
			t.Fatalf("seed %d: %s of %+v over %+v by %+v:\n%v, want\n%v", seed, resource, obj, old, u, ours, theirs)
		}
		if ours == nil {
			may++
		} else {
			mayNot++
		}
	}
	if may < 300 || mayNot < 300 {
		t.Errorf("%d writes were allowed and %d refused, which tests little", may, mayNot)
	}
}

func toInternal(t *testing.T, o runtime.Object) runtime.Object {
	t.Helper()
	in, err := legacyscheme.Scheme.ConvertToVersion(o.DeepCopyObject(), internal.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// lines returns what an error says. The order of the roles that do not exist is not defined. A kind of
// roles that does not exist is an error 500 of upstream, and 400 of ours.
func lines(err error) []string {
	if err == nil {
		return nil
	}
	text, unresolved, _ := strings.Cut(errorText(err), "; resolution errors: ")
	reason := string(apierrors.ReasonForError(err))
	if strings.HasPrefix(text, "unsupported role reference kind") {
		reason = ""
	}
	return append([]string{reason, text}, parts(unresolved)...)
}
