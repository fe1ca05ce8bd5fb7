package operation

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

type reader struct {
	catalog *catalog.Catalog
	store   Store
}

// NewReader returns a reader of stored objects, for plug-ins that are made before the server.
func NewReader(c *catalog.Catalog, st Store) admission.Reader { return reader{c, st} }

// Get implements [admission.Reader].
func (r reader) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error) {
	t := Target{Kind: r.catalog.Resource(gvr), Namespace: namespace, Name: name}
	if t.Kind == nil {
		return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
	}
	rec, err := r.store.Get(t.Key())
	if err != nil {
		return nil, t.readFault(err)
	}
	item, err := codec.ItemOf(t.Kind, rec.Key, rec.Value).In(ctx, t.Kind)
	if err != nil {
		return nil, err
	}
	if fault := item.Fault(); fault != nil {
		return nil, t.unreadable(fault)
	}
	return item.Object(), nil
}

// Await implements [admission.Reader].
func (r reader) Await(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error) {
	kind := r.catalog.Resource(gvr)
	if kind == nil {
		return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
	}
	q := store.Query{Prefix: kind.Key(namespace, name)}
	for {
		before := r.store.Revision()
		o, err := r.Get(ctx, gvr, namespace, name)
		if !apierrors.IsNotFound(err) || ctx.Err() != nil {
			return o, err
		}
		for ev, failed := range r.store.Watch(ctx, q, before) {
			if failed != nil && !errors.Is(failed, store.ErrExpired) {
				return nil, err
			}
			if failed != nil || ev.Key != "" && !ev.Deleted {
				break
			}
		}
	}
}

// List implements [admission.Reader]. Records that cannot be read are left out.
func (r reader) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, where fields.Set) ([]catalog.Object, error) {
	kind := r.catalog.Resource(gvr)
	if kind == nil {
		return nil, apierrors.NewNotFound(gvr.GroupResource(), "")
	}
	selector := ""
	if len(where) > 0 {
		selector = where.AsSelector().String()
	}
	c, err := Select(kind, namespace, "", selector)
	if err != nil {
		return nil, err
	}
	got, err := r.store.List(c.Query, store.Page{})
	if err != nil {
		return nil, StoreFault(err)
	}
	var items []*codec.Item
	for _, rec := range got.Records {
		if item := codec.ItemOf(kind, rec.Key, rec.Value); item.Fault() == nil && c.Matches(item) {
			items = append(items, item)
		}
	}
	if kind.Untyped() {
		if items, err = codec.Shown(ctx, kind, items); err != nil {
			return nil, err
		}
	}
	var objs []catalog.Object
	for _, item := range items {
		objs = append(objs, item.Object())
	}
	return objs, nil
}

// Holders implements [admission.Reader]. Records that cannot be read have no terms in the index (see [codec.Terms]).
func (r reader) Holders(_ context.Context, gvr schema.GroupVersionResource, what string) ([]catalog.Object, error) {
	kind := r.catalog.Resource(gvr)
	if kind == nil {
		return nil, apierrors.NewNotFound(gvr.GroupResource(), "")
	}
	got, err := r.store.List(store.Query{Prefix: kind.Prefix(""), Term: codec.SoleTerm(what)}, store.Page{})
	if err != nil {
		return nil, StoreFault(err)
	}
	var objs []catalog.Object
	for _, rec := range got.Records {
		objs = append(objs, rec.Value.(*codec.Item).Object())
	}
	return objs, nil
}

// Changes implements [admission.Reader].
func (r reader) Changes(ctx context.Context, gvr schema.GroupVersionResource, namespace string, since store.Revision) (admission.Changes, error) {
	kind := r.catalog.Resource(gvr)
	if kind == nil {
		return admission.Changes{}, apierrors.NewNotFound(gvr.GroupResource(), "")
	}
	q := store.Query{Prefix: kind.Prefix(namespace)}
	if since > 0 {
		events, now, err := r.store.Changes(q, since)
		switch {
		case err == nil:
			changes := admission.Changes{Now: now}
			for _, e := range events {
				item := codec.ItemOf(kind, e.Key, e.Value)
				changes.List = append(changes.List, admission.Change{Object: item.Object(), Gone: e.Deleted || item.Fault() != nil})
			}
			return changes, nil
		case !errors.Is(err, store.ErrExpired):
			return admission.Changes{}, StoreFault(err)
		}
	}
	got, err := r.store.List(q, store.Page{})
	if err != nil {
		return admission.Changes{}, StoreFault(err)
	}
	changes := admission.Changes{Whole: true, Now: got.Revision}
	for _, rec := range got.Records {
		if item := codec.ItemOf(kind, rec.Key, rec.Value); item.Fault() == nil {
			changes.List = append(changes.List, admission.Change{Object: item.Object()})
		}
	}
	return changes, nil
}
