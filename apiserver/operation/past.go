package operation

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/managed"
	"github.com/sampan-io/sampan/apiserver/past"
	"github.com/sampan-io/sampan/store"
)

// author names the user and the manager of a write, for the history.
func (t *Target) author() store.Author {
	manager := ""
	switch o := t.options.(type) {
	case *metav1.CreateOptions:
		manager = o.FieldManager
	case *metav1.UpdateOptions:
		manager = o.FieldManager
	}
	return store.Author{User: t.userName(), Agent: managed.Name(manager, t.Agent)}
}

func (t *Target) userName() string {
	if t.User == nil {
		return ""
	}
	return t.User.Name
}

// lookupAt returns the object as it was at the moment t.At, and the revision of that.
func (o *Operations) lookupAt(ctx context.Context, t *Target) (*codec.Item, store.Revision, error) {
	if t.Kind.Answered() {
		return nil, 0, notKept(t)
	}
	state, err := o.past.At(ctx, t.userName(), t.Kind.Hub(), t.Key(), t.At)
	if err != nil {
		return nil, 0, err
	}
	if len(state.Items) == 0 {
		err := apierrors.NewNotFound(t.Kind.GR(), t.Name)
		err.ErrStatus.Message += fmt.Sprintf(" at revision %d", state.Revision)
		return nil, 0, err
	}
	item := state.Items[0]
	if item.Fault() == nil && t.Kind.Untyped() && t.Sub != nil {
		if item, err = item.In(ctx, t.Kind); err != nil {
			return nil, 0, err
		}
	}
	fault := item.Fault()
	if errors.Is(fault, past.ErrPurged) {
		return nil, 0, apierrors.NewResourceExpired(fmt.Sprintf("%s as it was at revision %d was purged from the history", t, state.Revision))
	}
	if fault != nil {
		return nil, 0, apierrors.NewInternalError(fmt.Errorf("%s as it was at revision %d cannot be read: %w", t, state.Revision, fault))
	}
	return item, state.Revision, nil
}

// listOfPast is [Operations.List] at the moment t.At.
func (o *Operations) listOfPast(ctx context.Context, t *Target, c *Selection, opts metav1.ListOptions) (Listing, error) {
	if err := checkListOptions(opts, false); err != nil {
		return Listing{}, err
	}
	if opts.Continue != "" || opts.ResourceVersion != "" && opts.ResourceVersion != "0" {
		return Listing{}, apierrors.NewBadRequest(past.Parameter + ": must not be used with continue or resourceVersion")
	}
	l, err := o.listAt(ctx, t, c)
	if err == nil && t.Kind.Untyped() {
		l.Items, err = codec.Shown(ctx, t.Kind, l.Items)
	}
	return l, err
}

// listAt returns the objects as they were at the moment t.At. The list has no further pages.
func (o *Operations) listAt(ctx context.Context, t *Target, c *Selection) (Listing, error) {
	if t.Kind.Answered() {
		return Listing{}, notKept(t)
	}
	state, err := o.past.At(ctx, t.userName(), c.kind.Hub(), c.Query.Prefix, t.At)
	if err != nil {
		return Listing{}, err
	}
	out := Listing{Items: make([]*codec.Item, 0, len(state.Items))}
	out.Meta.ResourceVersion = strconv.FormatUint(uint64(state.Revision), 10)
	items, err := c.readied(ctx, state.Items)
	if err != nil {
		return Listing{}, err
	}
	for n, item := range items {
		if n%itemsBetweenLooks == 0 && ctx.Err() != nil {
			return Listing{}, context.Cause(ctx)
		}
		switch {
		case item.Fault() != nil:
			out.warn([]string{fmt.Sprintf("%s %q as it was at revision %d cannot be read and is left out", t.Kind.GR(), item.Object().GetName(), state.Revision)})
		case c.has(item):
			out.Items = append(out.Items, item)
		}
	}
	return out, nil
}

// notKept is the answer for objects that are not stored.
func notKept(t *Target) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s: %s are not stored and have no history", past.Parameter, t.Kind.GR()))
}
