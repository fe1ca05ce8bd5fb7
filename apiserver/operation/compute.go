package operation

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
func (o *Operations) source(t *Target) *catalog.Kind {
	if t.Kind.Computed != nil {
		if from := o.catalog.Resource(t.Kind.Computed.From); from != nil {
			return from
		}
	}
	return t.Kind
}

// compute makes the objects of the kind of t from stored ones.
func (o *Operations) compute(ctx context.Context, t *Target, from []*codec.Item) ([]*codec.Item, error) {
	objs := make([]catalog.Object, len(from))
	for i, item := range from {
		objs[i] = item.Object()
	}
	made, err := o.computers[t.Kind.Computed.Handler](ctx, objs)
	if err != nil {
		return nil, err
	}
	items := make([]*codec.Item, len(made))
	for i, obj := range made {
		if items[i], err = codec.NewItem(t.Kind, obj); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
	}
	return items, nil
}

// computeNamed makes the object that t names, of a kind that is made from no objects.
func (o *Operations) computeNamed(ctx context.Context, t *Target) (Result, error) {
	items, err := o.compute(ctx, t, nil)
	if err != nil {
		return Result{}, err
	}
	i := slices.IndexFunc(items, func(item *codec.Item) bool { return item.Object().GetName() == t.Name })
	if i < 0 {
		return Result{}, t.notFound()
	}
	return Result{Item: items[i]}, nil
}

// computeOne makes the object that t names. In the error for one that cannot be made, the resource is the kind in lower
// case, as in metrics-server: that of metrics is otherwise taken for that of pods.
func (o *Operations) computeOne(ctx context.Context, t *Target) (Result, error) {
	if t.Kind.Computed.From.Empty() {
		return o.computeNamed(ctx, t)
	}
	from := *t
	from.Kind = o.source(t)
	item, err := o.Lookup(ctx, &from)
	if err != nil {
		return Result{}, err
	}
	items, err := o.compute(ctx, t, []*codec.Item{item})
	if err != nil {
		return Result{}, err
	}
	if len(items) == 0 {
		name := t.Name
		if t.Namespace != "" {
			name = t.Namespace + "/" + name
		}
		return Result{}, apierrors.NewNotFound(schema.GroupResource{Group: t.Kind.Group, Resource: strings.ToLower(t.Kind.Kind)}, name)
	}
	return Result{Item: items[0]}, nil
}

// computeList makes the objects of the kind of t from a page of others. It has no revision from which it could be watched.
func (o *Operations) computeList(ctx context.Context, t *Target, c *Selection, l Listing) (Listing, error) {
	items, err := o.compute(ctx, t, l.Items)
	if err != nil {
		return Listing{}, err
	}
	if t.Kind.Computed.From.Empty() {
		items = slices.DeleteFunc(items, func(item *codec.Item) bool { return !c.Matches(item) })
	}
	l.Items, l.unreadable = items, nil
	l.Meta.ResourceVersion = ""
	return l, nil
}
