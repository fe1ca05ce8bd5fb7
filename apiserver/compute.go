package apiserver

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
)

// source returns the kind whose stored objects a list of t is about: that from which the objects are computed, or its own.
func (o *operations) source(t *target) *catalog.Kind {
	if t.kind.Computed != nil {
		if from := o.catalog.Resource(t.kind.Computed.From); from != nil {
			return from
		}
	}
	return t.kind
}

// compute makes the objects of the kind of t from stored ones.
func (o *operations) compute(ctx context.Context, t *target, from []*codec.Item) ([]*codec.Item, error) {
	objs := make([]catalog.Object, len(from))
	for i, item := range from {
		objs[i] = item.Object()
	}
	made, err := o.computers[t.kind.Computed.Handler](ctx, objs)
	if err != nil {
		return nil, err
	}
	items := make([]*codec.Item, len(made))
	for i, obj := range made {
		if items[i], err = codec.NewItem(t.kind, obj); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
	}
	return items, nil
}

// computeNamed makes the object that t names, of a kind that is made from no objects.
func (o *operations) computeNamed(ctx context.Context, t *target) (result, error) {
	items, err := o.compute(ctx, t, nil)
	if err != nil {
		return result{}, err
	}
	i := slices.IndexFunc(items, func(item *codec.Item) bool { return item.Object().GetName() == t.name })
	if i < 0 {
		return result{}, t.notFound()
	}
	return result{item: items[i]}, nil
}

// computeOne makes the object that t names. In the error for one that cannot be made, the resource is the kind in lower
// case, as in metrics-server: that of metrics is otherwise taken for that of pods.
func (o *operations) computeOne(ctx context.Context, t *target) (result, error) {
	if t.kind.Computed.From.Empty() {
		return o.computeNamed(ctx, t)
	}
	from := *t
	from.kind = o.source(t)
	item, err := o.lookup(ctx, &from)
	if err != nil {
		return result{}, err
	}
	items, err := o.compute(ctx, t, []*codec.Item{item})
	if err != nil {
		return result{}, err
	}
	if len(items) == 0 {
		name := t.name
		if t.namespace != "" {
			name = t.namespace + "/" + name
		}
		return result{}, apierrors.NewNotFound(schema.GroupResource{Group: t.kind.Group, Resource: strings.ToLower(t.kind.Kind)}, name)
	}
	return result{item: items[0]}, nil
}

// computeList makes the objects of the kind of t from a page of others. It has no revision from which it could be watched.
func (o *operations) computeList(ctx context.Context, t *target, c *chosen, l listing) (listing, error) {
	items, err := o.compute(ctx, t, l.items)
	if err != nil {
		return listing{}, err
	}
	if t.kind.Computed.From.Empty() {
		items = slices.DeleteFunc(items, func(item *codec.Item) bool { return !c.matches(item) })
	}
	l.items, l.unreadable = items, nil
	l.meta.ResourceVersion = ""
	return l, nil
}
