package operation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/store"
)

// A record that cannot be read ([codec.Item.Fault]) has come from an older version or from a
// damaged disk. It is left out of lists and watches, so that it does not keep the others from
// being served: to show a stand-in without a spec would make controllers act on that. A GET
// of it returns that error. A DELETE removes it at once, because no controller can remove its
// finalizers or stop what it describes.

// unreadable returns the error of reading such a record, with the reason that Kubernetes has
// for it.
func (t *Target) unreadable(fault error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: codeInternalError, Reason: metav1.StatusReasonStoreReadError,
		Message: fmt.Sprintf("%s %q cannot be read from the store, and can only be deleted: %v", t.Kind.GR(), t.Name, fault),
		Details: &metav1.StatusDetails{Name: t.Name, Group: t.Kind.Group, Kind: t.Kind.Resource},
	}}
}

// Warnings returns the warnings that arose when the objects were deleted, and the one that names the records which a
// list leaves out.
func (l *Listing) Warnings(t *Target) []string {
	const named = 5
	n := len(l.unreadable)
	if n == 0 {
		return l.warned
	}
	var names []string
	for _, item := range l.unreadable[:min(n, named)] {
		obj := item.Object()
		names = append(names, strings.TrimPrefix(obj.GetNamespace()+"/"+obj.GetName(), "/"))
	}
	if n > named {
		names = append(names, "...")
	}
	return append(slices.Clone(l.warned), fmt.Sprintf("%d %s cannot be read from the store and are left out, delete them: %s", n, t.Kind.GR(), strings.Join(names, ", ")))
}

// removeUnreadable deletes a record that cannot be read.
func (o *Operations) removeUnreadable(ctx context.Context, t *Target, old *codec.Item, opts metav1.DeleteOptions) (r Result, err error) {
	standIn := old.Object()
	if err := checkPreconditions(t, opts.Preconditions, old); err != nil {
		return Result{}, err
	}
	dryRun := len(opts.DryRun) > 0
	a := t.attributes(ctx, admission.Delete, dryRun)
	a.Old = standIn
	committed := false
	defer func() { r.end(&a, committed) }()
	if err := o.admitWhole(ctx, &a); err != nil {
		return Result{}, err
	}
	if !dryRun {
		if _, err := o.replace(ctx, t, &a, store.Write{Key: t.Key(), Value: old.Restate(), Delete: true, Expect: old.Revision()}); err != nil {
			return Result{}, err
		}
		committed = true
	}
	if f := standIn.GetFinalizers(); len(f) > 0 {
		a.Warnings = append(a.Warnings, fmt.Sprintf("%s %q could not be read and was deleted without its finalizers: %s", t.Kind.GR(), t.Name, strings.Join(f, ", ")))
	}
	return Result{Made: deletedStatus(t, standIn)}, nil
}

// beforeGone prepares the removal of an object. With a namespace go the records in it that
// cannot be read: controllers do not see them, and they would be there again in the next
// namespace of that name.
func (o *Operations) beforeGone(ctx context.Context, t *Target) error {
	if t.Kind.GR() != (schema.GroupResource{Resource: "namespaces"}) {
		return nil
	}
	return o.removeUnreadableIn(ctx, t)
}

// removeUnreadableIn deletes the records of the namespace t that cannot be read.
func (o *Operations) removeUnreadableIn(ctx context.Context, t *Target) error {
	for _, kind := range o.catalog.Snapshot().Hubs() {
		if !kind.Namespaced || kind.Answered() {
			continue
		}
		got, err := o.store.List(store.Query{Prefix: kind.Prefix(t.Name)}, store.Page{})
		if err != nil {
			return StoreFault(err)
		}
		for _, rec := range got.Records {
			item := codec.ItemOf(kind, rec.Key, rec.Value)
			if item.Fault() == nil {
				continue
			}
			if _, err := o.replace(ctx, t, &admission.Attributes{}, store.Write{Key: rec.Key, Value: item.Restate(), Delete: true, Expect: item.Revision()}); err != nil {
				return err
			}
		}
	}
	return nil
}
