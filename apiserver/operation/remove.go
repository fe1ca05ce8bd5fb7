package operation

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// Delete asks for the deletion of an object. The answer is a Status if the object is
// gone (see deleted), and otherwise the object, which goes on existing until its grace is over and
// its finalizers are gone.
func (o *Operations) Delete(ctx context.Context, t Target, opts metav1.DeleteOptions) (Result, error) {
	if err := o.Allow(ctx, &t, VerbDelete, nil, t.Name); err != nil {
		return Result{}, err
	}
	if err := checkOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(&opts)); err != nil {
		return Result{}, err
	}
	return o.removeAllowed(ctx, &t, opts)
}

func (o *Operations) removeAllowed(ctx context.Context, t *Target, opts metav1.DeleteOptions) (Result, error) {
	t.options = removeOptions(&opts)
	return o.untilWon(ctx, t, func() (Result, error) { return o.removeOnce(ctx, t, opts) })
}

// DeleteCollection deletes the objects that the options choose and answers with what
// they were. An object that goes by itself in the meantime is no fault. The listing has warnings even with an error.
func (o *Operations) DeleteCollection(ctx context.Context, t Target, list metav1.ListOptions, opts metav1.DeleteOptions) (Listing, error) {
	c, err := Select(t.Kind, t.Namespace, list.LabelSelector, list.FieldSelector)
	if err != nil {
		return Listing{}, err
	}
	if err := o.Allow(ctx, &t, VerbDeleteCollection, c.Where, c.Name); err != nil {
		return Listing{}, err
	}
	if err := checkOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(&opts)); err != nil {
		return Listing{}, err
	}
	out, err := o.listChosen(ctx, &c, list)
	if err != nil {
		return Listing{}, err
	}
	victims := out.Items
	if c.Everything() { // what cannot be read matches no selector
		victims = slices.Concat(out.Items, out.unreadable)
	}
	for _, item := range victims {
		one := t
		one.Namespace, one.Name = item.Object().GetNamespace(), item.Object().GetName()
		r, err := o.removeAllowed(ctx, &one, opts)
		out.warn(r.Warnings)
		if err != nil && !apierrors.IsNotFound(err) {
			return Listing{warned: out.warned}, err
		}
	}
	return out, nil
}

func (o *Operations) removeOnce(ctx context.Context, t *Target, opts metav1.DeleteOptions) (r Result, err error) {
	old, err := o.lookupRecord(ctx, t)
	if err != nil {
		return Result{}, err
	}
	if old.Fault() != nil {
		return o.removeUnreadable(ctx, t, old, opts)
	}
	if t.Kind.Untyped() {
		shown, err := old.In(ctx, t.Kind.Hub())
		switch {
		case err == nil && shown.Fault() == nil:
			old = shown
		case err != nil && len(old.Object().GetFinalizers()) > 0:
			return Result{}, err // without finalizers it can go as it is, whatever became of its webhook
		}
	}
	stored := old.Object()
	if err := checkPreconditions(t, opts.Preconditions, old); err != nil {
		return Result{}, err
	}
	dryRun := len(opts.DryRun) > 0
	a := t.attributes(ctx, admission.Delete, dryRun)
	a.Old = stored
	committed := false
	defer func() { r.end(&a, committed) }()
	if err := o.admitWhole(ctx, &a); err != nil {
		return Result{}, err
	}

	obj := deleting(t.Kind, stored, &opts, now())
	w := store.Write{Key: t.Key(), Expect: old.Revision(), Volatile: t.Kind.Loses(obj, stored), Frees: true, Reserve: reserveOf(t, true), Account: accountOf(t, stored)}
	var item *codec.Item
	switch obj {
	case nil: // it goes now, as it is
		w.Delete, w.Value = true, old.Restate()
	default:
		if item, err = codec.NewItem(t.Kind, obj); err != nil {
			return Result{}, err
		}
		w.Value = item
		if stored.GetDeletionTimestamp() == nil {
			w.Reserve = store.ForMark
		}
	}
	switch {
	case dryRun && w.Delete:
		return Result{Made: deleted(t, old, &opts, old.ResourceVersion())}, nil
	case dryRun:
		obj.SetResourceVersion(old.ResourceVersion())
		return Result{Made: obj}, nil
	case !w.Delete && item.Same(old):
		return Result{Item: old}, nil
	}
	if w.Delete {
		if err := o.beforeGone(ctx, t); err != nil {
			return Result{}, err
		}
	}
	if item, err = o.replace(ctx, t, &a, w); err != nil {
		return Result{}, err
	}
	committed = true
	if w.Delete {
		return Result{Made: deleted(t, old, &opts, item.ResourceVersion())}, nil
	}
	return Result{Item: item}, nil
}

// deleted is the answer when an object is gone: a Status, or the last state for kinds that answer with that.
func deleted(t *Target, old *codec.Item, opts *metav1.DeleteOptions, version string) runtime.Object {
	stored := old.Object()
	if !t.Kind.AnswersDeleted {
		return deletedStatus(t, stored)
	}
	obj := stored.DeepCopyObject().(catalog.Object)
	if t.Kind.Grace != nil && obj.GetDeletionTimestamp() == nil {
		mark(obj, now(), t.Kind.Grace(obj, opts.GracePeriodSeconds)) // upstream stores that before it deletes the object
	}
	obj.SetResourceVersion(version)
	return obj
}

func deletedStatus(t *Target, obj catalog.Object) *metav1.Status {
	return Success(&metav1.StatusDetails{Name: t.Name, Group: t.Kind.Group, Kind: t.Kind.Resource, UID: obj.GetUID()})
}

func checkPreconditions(t *Target, p *metav1.Preconditions, old *codec.Item) error {
	if p == nil {
		return nil
	}
	if have := old.Object().GetUID(); p.UID != nil && *p.UID != have {
		return apierrors.NewConflict(t.Kind.GR(), t.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, have))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != old.ResourceVersion() {
		return apierrors.NewConflict(t.Kind.GR(), t.Name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, old.ResourceVersion()))
	}
	return nil
}

// deleting returns the object as it goes on existing after its deletion was asked
// for, or nil if it goes now. It is a pure function; the rules are those of the
// Kubernetes API for finalizers, propagation and grace.
func deleting(kind *catalog.Kind, stored catalog.Object, opts *metav1.DeleteOptions, at metav1.Time) catalog.Object {
	obj := stored.DeepCopyObject().(catalog.Object)
	obj.SetFinalizers(withPropagation(obj.GetFinalizers(), propagation(kind, obj, opts)))
	since, grace := obj.GetDeletionTimestamp(), obj.GetDeletionGracePeriodSeconds()

	asked := opts.GracePeriodSeconds
	if asked != nil && *asked < 0 {
		one := int64(1) // as Kubernetes reads a negative one
		asked = &one
	}
	var wait int64
	switch {
	case since == nil:
		if kind.Grace != nil {
			wait = kind.Grace(obj, asked)
		}
		until := metav1.NewTime(at.Add(time.Duration(wait) * time.Second))
		mark(obj, until, wait)
	case grace != nil && *grace > 0 && asked != nil && *asked < *grace:
		// A second request may only shorten the grace.
		wait = *asked
		until := metav1.NewTime(since.Add(time.Duration(wait-*grace) * time.Second))
		mark(obj, until, wait)
	}
	if gone(kind, obj) {
		return nil
	}
	if since == nil && kind.Terminating != nil {
		kind.Terminating(obj)
	}
	return obj
}

// mark says in the metadata when the object shall be gone. That is a change that
// counts where changes are counted.
func mark(obj catalog.Object, until metav1.Time, grace int64) {
	if obj.GetDeletionTimestamp() == nil && obj.GetGeneration() > 0 {
		obj.SetGeneration(obj.GetGeneration() + 1)
	}
	obj.SetDeletionTimestamp(&until)
	obj.SetDeletionGracePeriodSeconds(&grace)
}

// propagation says what is to become of the dependents: what the request says,
// otherwise what a finalizer from an earlier request says, otherwise what is usual for
// the kind.
func propagation(kind *catalog.Kind, obj catalog.Object, opts *metav1.DeleteOptions) metav1.DeletionPropagation {
	// old clients still send orphanDependents
	if orphan := opts.OrphanDependents; orphan != nil {
		if *orphan {
			return metav1.DeletePropagationOrphan
		}
		return metav1.DeletePropagationBackground
	}
	if opts.PropagationPolicy != nil {
		return *opts.PropagationPolicy
	}
	for _, f := range obj.GetFinalizers() {
		switch f {
		case metav1.FinalizerOrphanDependents:
			return metav1.DeletePropagationOrphan
		case metav1.FinalizerDeleteDependents:
			return metav1.DeletePropagationForeground
		}
	}
	return kind.DefaultPropagation
}

// withPropagation returns the finalizers by which the garbage collector learns what to
// do, beside those of others.
func withPropagation(finalizers []string, p metav1.DeletionPropagation) []string {
	out := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	switch p {
	case metav1.DeletePropagationOrphan:
		out = append(out, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		out = append(out, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationBackground:
	}
	return out
}
