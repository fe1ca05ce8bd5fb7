package follow

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/store"
)

// Objects calls update with all stored objects of a resource, in the order of their names, at once and after each change, until ctx
// is over or the store has ended. The objects are shared; the slice belongs to update. Records that cannot be read are left out. It
// is for resources that have few objects.
func Objects(ctx context.Context, c *catalog.Catalog, st Store, gvr schema.GroupVersionResource, update func([]catalog.Object)) {
	kind := c.Resource(gvr)
	if kind == nil {
		<-ctx.Done()
		return
	}
	known := map[string]catalog.Object{} // by key
	Records(ctx, st, store.Query{Prefix: kind.Prefix("")}, Follower{
		All: func(_ context.Context, records []store.Record) error {
			clear(known)
			for _, rec := range records {
				keep(known, rec)
			}
			update(sorted(known))
			return nil
		},
		Changed: func(_ context.Context, ev store.Event) {
			if ev.Deleted {
				delete(known, ev.Key)
			} else {
				keep(known, ev.Record)
			}
			update(sorted(known))
		},
	})
}

// keep makes known have a stored object. One that cannot be read counts as missing.
func keep(known map[string]catalog.Object, rec store.Record) {
	delete(known, rec.Key)
	if item := rec.Value.(*codec.Item); item.Fault() == nil {
		known[rec.Key] = item.Object()
	}
}

func sorted(known map[string]catalog.Object) []catalog.Object {
	objects := make([]catalog.Object, 0, len(known))
	for _, obj := range known {
		objects = append(objects, obj)
	}
	sorting.Slice(objects, func(a, b catalog.Object) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return objects
}
