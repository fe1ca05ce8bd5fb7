package bootstrap

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
	"github.com/sampan-io/sampan/internal/run"
)

// reconcileRoles makes the roles and bindings that every cluster has, and adds what existing ones
// lack, as [bootstrappolicy.Reconcile] says. The first try makes the changes that were found at the start;
// later ones look again.
func (r *Reconciler) reconcileRoles(ctx context.Context) error {
	changes := r.opts.Roles
	if r.tried {
		existing, err := r.storedRoles(ctx)
		if err != nil {
			return err
		}
		changes = bootstrappolicy.Reconcile(existing, bootstrappolicy.All())
	}
	r.tried, r.opts.Roles = true, nil // they are many, and not needed again
	faults := make([]error, len(changes))
	// All at once, so that they share a sync of the disk.
	group := run.NewGroup(ctx, 0)
	for i, c := range changes {
		group.Go(func(ctx context.Context) { faults[i] = r.change(ctx, c) })
	}
	group.Wait()
	group.Stop()
	return errors.Join(faults...)
}

func (r *Reconciler) storedRoles(ctx context.Context) (o rbac.Objects, err error) {
	for _, resource := range []string{"clusterroles", "roles", "clusterrolebindings", "rolebindings"} {
		objs, _, err := r.opts.API.List(ctx, rbacv1.SchemeGroupVersion.WithResource(resource), "", metav1.ListOptions{})
		if err != nil {
			return o, fmt.Errorf("listing %s: %w", resource, err)
		}
		for _, obj := range objs {
			o.Add(obj)
		}
	}
	return o, nil
}

// change makes one change. An object that another client made meanwhile is no fault: the next start
// compares it.
func (r *Reconciler) change(ctx context.Context, c bootstrappolicy.Change) error {
	gvr := roleResource(c.Object)
	namespace, name := c.Object.GetNamespace(), c.Object.GetName()
	if c.Operation == bootstrappolicy.Update {
		_, err := r.opts.API.Update(ctx, gvr, namespace, name, c.Object, metav1.UpdateOptions{}, "")
		return err
	}
	if c.Operation == bootstrappolicy.Recreate {
		if err := r.opts.API.Delete(ctx, gvr, namespace, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		c.Object.SetResourceVersion("")
	}
	_, err := r.opts.API.Create(ctx, gvr, namespace, "", c.Object, metav1.CreateOptions{}, "")
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func roleResource(obj runtime.Object) schema.GroupVersionResource {
	resource := ""
	switch obj.(type) {
	case *rbacv1.ClusterRole:
		resource = "clusterroles"
	case *rbacv1.Role:
		resource = "roles"
	case *rbacv1.ClusterRoleBinding:
		resource = "clusterrolebindings"
	case *rbacv1.RoleBinding:
		resource = "rolebindings"
	}
	return rbacv1.SchemeGroupVersion.WithResource(resource)
}
