package apiserver

import (
	"context"
	"errors"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// policyResources are the resources that a policy is made of. Roles come before their bindings, so that
// a binding is never without a role that exists.
var policyResources = []schema.GroupVersionResource{ //nolint:gochecknoglobals // a constant
	rbacv1.SchemeGroupVersion.WithResource("clusterroles"),
	rbacv1.SchemeGroupVersion.WithResource("roles"),
	rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"),
	rbacv1.SchemeGroupVersion.WithResource("rolebindings"),
}

// StoredPolicy returns the RBAC objects that are stored. It copies them.
func StoredPolicy(ctx context.Context, stored admission.Reader) (o rbac.Objects, err error) {
	for _, gvr := range policyResources {
		all, err := stored.List(ctx, gvr, "", nil)
		if err != nil {
			return o, err
		}
		for _, obj := range all {
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
	}
	return o, nil
}

// FollowPolicy keeps a policy equal to the stored RBAC objects until ctx is over. Objects that the policy
// has and that are not stored stay until they are written or deleted.
func FollowPolicy(ctx context.Context, c *catalog.Catalog, st Store, p *rbac.Policy) error {
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	for _, gvr := range policyResources {
		if kind := c.Resource(gvr); kind != nil {
			f := policyFollower{store: st, query: store.Query{Prefix: kind.Prefix("")}, policy: p, known: map[string]catalog.Object{}}
			g.Go(f.follow)
		}
	}
	<-ctx.Done()
	return nil
}

// A policyFollower follows one resource.
type policyFollower struct {
	store  Store
	query  store.Query
	policy *rbac.Policy
	known  map[string]catalog.Object // by key
}

func (f *policyFollower) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if err := f.once(ctx); err != nil && !errors.Is(err, store.ErrExpired) {
			return // the store has ended
		}
	}
}

// once sets the state and then what changes, until the watch ends.
func (f *policyFollower) once(ctx context.Context) error {
	state, err := f.store.List(f.query, store.Page{})
	if err != nil {
		return err
	}
	gone := f.known
	f.known = make(map[string]catalog.Object, len(state.Records))
	for _, rec := range state.Records {
		delete(gone, rec.Key)
		f.set(rec)
	}
	for _, obj := range gone {
		f.policy.Remove(obj)
	}
	for ev, err := range f.store.Watch(ctx, f.query, state.Revision) {
		switch {
		case err != nil:
			return err
		case ev.Key == "":
		case ev.Deleted:
			f.policy.Remove(ev.Value.(*codec.Item).Object())
			delete(f.known, ev.Key)
		default:
			f.set(ev.Record)
		}
	}
	return nil
}

// set makes the policy have a stored object. One that cannot be read grants nothing.
func (f *policyFollower) set(rec store.Record) {
	item := rec.Value.(*codec.Item)
	f.known[rec.Key] = item.Object()
	if item.Fault() != nil {
		f.policy.Remove(item.Object())
		return
	}
	f.policy.Set(item.Object())
}
