package follow

import (
	"context"

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
var policyResources = []schema.GroupVersionResource{
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
			o.Add(obj)
		}
	}
	return o, nil
}

// Policy keeps a policy equal to the stored RBAC objects until ctx is over. Objects that the policy has and that are not stored stay
// until they are written or deleted.
func Policy(ctx context.Context, c *catalog.Catalog, st Store, p *rbac.Policy) {
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	for _, gvr := range policyResources {
		if kind := c.Resource(gvr); kind != nil {
			f := policyFollower{policy: p, known: map[string]catalog.Object{}}
			g.Go(func(ctx context.Context) {
				Records(ctx, st, store.Query{Prefix: kind.Prefix("")}, Follower{All: f.all, Changed: f.changed})
			})
		}
	}
	<-ctx.Done()
}

// A policyFollower follows one resource.
type policyFollower struct {
	policy *rbac.Policy
	known  map[string]catalog.Object // by key
}

func (f *policyFollower) all(_ context.Context, records []store.Record) error {
	gone := f.known
	f.known = make(map[string]catalog.Object, len(records))
	for _, rec := range records {
		delete(gone, rec.Key)
		f.set(rec)
	}
	for _, obj := range gone {
		f.policy.Remove(obj)
	}
	return nil
}

func (f *policyFollower) changed(_ context.Context, ev store.Event) {
	if !ev.Deleted {
		f.set(ev.Record)
		return
	}
	f.policy.Remove(ev.Value.(*codec.Item).Object())
	delete(f.known, ev.Key)
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
