package apiserver

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/store"
)

// Follow calls update with all stored objects of a resource, at once and after each change, until ctx is over or the store
// has ended. The objects are shared; the slice belongs to update. Records that cannot be read are left out. It is for parts of
// the server that use few objects of a kind, such as its admission plug-ins.
func Follow(ctx context.Context, c *catalog.Catalog, st Store, gvr schema.GroupVersionResource, update func([]catalog.Object)) error {
	kind := c.Resource(gvr)
	if kind == nil {
		<-ctx.Done()
		return nil
	}
	f := follower{store: st, query: store.Query{Prefix: kind.Prefix("")}, update: update}
	for ctx.Err() == nil {
		if err := f.once(ctx); err != nil && !errors.Is(err, store.ErrExpired) {
			return nil //nolint:nilerr // the store has ended
		}
	}
	return nil
}

type follower struct {
	store   Store
	query   store.Query
	update  func([]catalog.Object)
	objects map[string]catalog.Object // by key
}

// once takes the state and then what changes, until the watch ends.
func (f *follower) once(ctx context.Context) error {
	state, err := f.store.List(f.query, store.Page{})
	if err != nil {
		return err
	}
	f.objects = map[string]catalog.Object{}
	for _, rec := range state.Records {
		f.set(rec)
	}
	f.report()
	for ev, err := range f.store.Watch(ctx, f.query, state.Revision) {
		switch {
		case err != nil:
			return err
		case ev.Key == "":
			continue
		case ev.Deleted:
			delete(f.objects, ev.Key)
		default:
			f.set(ev.Record)
		}
		f.report()
	}
	return nil
}

func (f *follower) set(rec store.Record) {
	delete(f.objects, rec.Key)
	if item := rec.Value.(*codec.Item); item.Fault() == nil {
		f.objects[rec.Key] = item.Object()
	}
}

func (f *follower) report() {
	objects := make([]catalog.Object, 0, len(f.objects))
	for _, obj := range f.objects {
		objects = append(objects, obj)
	}
	sorting.Slice(objects, func(a, b catalog.Object) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	f.update(objects)
}
