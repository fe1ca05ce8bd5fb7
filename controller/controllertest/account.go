package controllertest

import (
	"context"
	"iter"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
)

// authorizer decides by the roles that every cluster has.
var authorizer = sync.OnceValue(func() *rbac.Authorizer {
	return rbac.New(rbac.Options{Policy: rbac.NewPolicy(bootstrappolicy.All())})
})

// Config returns the configuration of controllers that see a cluster through c and read it from caches. As in a
// cluster, each acts as its service account: a request that the roles of every cluster refuse to the account fails.
func Config(c client.Interface, caches *cache.Shared) controller.Config {
	return controller.Config{Client: c, Caches: caches, As: func(name string) client.Interface { return account{c, Account(name)} }}
}

// Account returns the service account of kube-system of that name as a user.
func Account(name string) auth.User {
	return auth.User{Name: auth.ServiceAccountUser("kube-system", name), Groups: []string{
		auth.GroupServiceAccounts, auth.GroupServiceAccounts + ":kube-system", auth.GroupAuthenticated,
	}}
}

// An account makes requests that the roles of its user allow.
type account struct {
	api  client.Interface
	user auth.User
}

func (a account) check(ctx context.Context, verb string, gvr schema.GroupVersionResource, namespace, name, subresource string) error {
	attributes := rbac.Attributes{
		User: &a.user, Verb: verb, Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Subresource: subresource,
		Namespace: namespace, Name: name,
	}
	if d := authorizer().Authorize(ctx, attributes); !d.Allowed {
		return rbac.Forbidden(attributes, d)
	}
	return nil
}

// Get implements client.Interface.
func (a account) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name, subresource string) (runtime.Object, error) {
	if err := a.check(ctx, "get", gvr, namespace, name, subresource); err != nil {
		return nil, err
	}
	return a.api.Get(ctx, gvr, namespace, name, subresource)
}

// List implements client.Interface.
func (a account) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	if err := a.check(ctx, "list", gvr, namespace, "", ""); err != nil {
		return nil, metav1.ListMeta{}, err
	}
	return a.api.List(ctx, gvr, namespace, opts)
}

// Watch implements client.Interface. Controllers watch through the shared caches.
func (a account) Watch(context.Context, schema.GroupVersionResource, string, metav1.ListOptions) iter.Seq2[watch.Event, error] {
	return func(yield func(watch.Event, error) bool) {
		yield(watch.Event{}, apierrors.NewBadRequest("a controller watches through its caches"))
	}
}

// Create implements client.Interface.
func (a account) Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource string) (runtime.Object, error) {
	if err := a.check(ctx, "create", gvr, namespace, name, subresource); err != nil {
		return nil, err
	}
	return a.api.Create(ctx, gvr, namespace, name, obj, opts, subresource)
}

// Update implements client.Interface.
func (a account) Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, subresource string) (runtime.Object, error) {
	if err := a.check(ctx, "update", gvr, namespace, name, subresource); err != nil {
		return nil, err
	}
	return a.api.Update(ctx, gvr, namespace, name, obj, opts, subresource)
}

// Patch implements client.Interface.
func (a account) Patch(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, kind types.PatchType, patch []byte, opts metav1.PatchOptions, subresource string) (runtime.Object, error) {
	if err := a.check(ctx, "patch", gvr, namespace, name, subresource); err != nil {
		return nil, err
	}
	return a.api.Patch(ctx, gvr, namespace, name, kind, patch, opts, subresource)
}

// Delete implements client.Interface.
func (a account) Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	if err := a.check(ctx, "delete", gvr, namespace, name, ""); err != nil {
		return err
	}
	return a.api.Delete(ctx, gvr, namespace, name, opts)
}
