package follow

import (
	"context"
	"strings"

	"github.com/sampan-io/sampan/apiserver/admission/policies"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// AdmissionPolicies keeps a set equal to the stored admission policies and bindings until ctx is over. A policy that cannot be read
// has no effect.
func AdmissionPolicies(ctx context.Context, c *catalog.Catalog, st Store, set *policies.Set) {
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	for _, gvr := range policies.Resources() {
		kind := c.Resource(gvr)
		if kind == nil {
			continue
		}
		prefix := kind.Prefix("")
		g.Go(func(ctx context.Context) {
			Records(ctx, st, store.Query{Prefix: prefix}, Follower{
				All: func(ctx context.Context, _ []store.Record) error { return set.Load(ctx) },
				Changed: func(ctx context.Context, ev store.Event) {
					set.Reload(ctx, kind.Resource, strings.TrimPrefix(ev.Key, prefix))
				},
			})
		})
	}
	<-ctx.Done()
}
