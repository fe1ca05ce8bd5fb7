package apiserver

import (
	"context"
	"errors"
	"strings"

	"github.com/sampan-io/sampan/apiserver/admission/policies"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// FollowAdmissionPolicies keeps a set equal to the stored admission policies and bindings until ctx is over.
func FollowAdmissionPolicies(ctx context.Context, c *catalog.Catalog, st Store, set *policies.Set) error {
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	for _, gvr := range policies.Resources() {
		kind := c.Resource(gvr)
		if kind == nil {
			continue
		}
		g.Go(func(ctx context.Context) {
			for ctx.Err() == nil {
				if err := followPolicies(ctx, kind, st, set); err != nil && !errors.Is(err, store.ErrExpired) {
					return // the store has ended
				}
			}
		})
	}
	<-ctx.Done()
	return nil
}

// followPolicies reads the state of one resource and then what changes, until the watch ends. A policy that cannot be read
// has no effect.
func followPolicies(ctx context.Context, kind *catalog.Kind, st Store, set *policies.Set) error {
	revision := st.Revision()
	if err := set.Load(ctx); err != nil {
		return err
	}
	prefix := kind.Prefix("")
	for ev, err := range st.Watch(ctx, store.Query{Prefix: prefix}, revision) {
		switch {
		case err != nil:
			return err
		case ev.Key != "":
			_ = set.Reload(ctx, kind.Resource, strings.TrimPrefix(ev.Key, prefix))
		}
	}
	return nil
}
