package apiserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// remove asks for the deletion of an object. The answer is a Status if the object is
// gone (see deleted), and otherwise the object, which goes on existing until its grace is over and
// its finalizers are gone.
func (o *operations) remove(ctx context.Context, t target, opts metav1.DeleteOptions) (result, error) {
	if err := o.allow(ctx, &t, verbDelete, nil, t.name); err != nil {
		return result{}, err
	}
	if err := checkOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(&opts)); err != nil {
		return result{}, err
	}
	return o.removeAllowed(ctx, &t, opts)
}

func (o *operations) removeAllowed(ctx context.Context, t *target, opts metav1.DeleteOptions) (result, error) {
	t.options = removeOptions(&opts)
	return o.untilWon(ctx, t, func() (result, error) { return o.removeOnce(ctx, t, opts) })
}

// removeCollection deletes the objects that the options choose and answers with what
// they were. An object that goes by itself in the meantime is no fault.
func (o *operations) removeCollection(ctx context.Context, t target, list metav1.ListOptions, opts metav1.DeleteOptions) (listing, error) {
	c, err := choose(t.kind, t.namespace, list.LabelSelector, list.FieldSelector)
	if err != nil {
		return listing{}, err
	}
	if err := o.allow(ctx, &t, verbDeleteCollection, c.where, c.name); err != nil {
		return listing{}, err
	}
	if err := checkOptions("DeleteOptions", metavalidation.ValidateDeleteOptions(&opts)); err != nil {
		return listing{}, err
	}
	out, err := o.listChosen(ctx, &c, list)
	if err != nil {
		return listing{}, err
	}
	victims := out.items
	if c.everything() { // what cannot be read matches no selector
		victims = slices.Concat(out.items, out.unreadable)
	}
	for _, item := range victims {
		one := t
		one.namespace, one.name = item.Object().GetNamespace(), item.Object().GetName()
		if _, err := o.removeAllowed(ctx, &one, opts); err != nil && !apierrors.IsNotFound(err) {
			return listing{}, err
		}
	}
	return out, nil
}

func (o *operations) removeOnce(ctx context.Context, t *target, opts metav1.DeleteOptions) (result, error) {
	old, err := o.lookupRecord(t)
	if err != nil {
		return result{}, err
	}
	if old.Fault() != nil {
		return o.removeUnreadable(ctx, t, old, opts)
	}
	if t.kind.Untyped() {
		shown, err := old.In(ctx, t.kind.Hub())
		switch {
		case err == nil && shown.Fault() == nil:
			old = shown
		case err != nil && len(old.Object().GetFinalizers()) > 0:
			return result{}, err // without finalizers it can go as it is, whatever became of its webhook
		}
	}
	stored := old.Object()
	if err := checkPreconditions(t, opts.Preconditions, old); err != nil {
		return result{}, err
	}
	dryRun := len(opts.DryRun) > 0
	a := t.attributes(ctx, admission.Delete, dryRun)
	a.Old = stored
	committed := false
	defer func() { a.Finish(committed) }()
	if err := o.admitWhole(ctx, &a); err != nil {
		return result{warnings: a.Warnings}, err
	}

	obj := deleting(t.kind, stored, &opts, now())
	w := store.Write{Key: t.key(), Expect: old.Revision(), Volatile: t.kind.Loses(obj, stored), Frees: true, Reserve: reserveOf(t, true), Account: accountOf(t, stored)}
	var item *codec.Item
	switch obj {
	case nil: // it goes now, as it is
		w.Delete, w.Value = true, old.Restate()
	default:
		if item, err = codec.NewItem(t.kind, obj); err != nil {
			return result{}, err
		}
		w.Value = item
		if stored.GetDeletionTimestamp() == nil {
			w.Reserve = store.ForMark
		}
	}
	switch {
	case dryRun && w.Delete:
		return result{obj: deleted(t, old, &opts, old.ResourceVersion()), warnings: a.Warnings}, nil
	case dryRun:
		obj.SetResourceVersion(old.ResourceVersion())
		return result{obj: obj}, nil
	case !w.Delete && item.Same(old):
		return result{item: old}, nil
	}
	if w.Delete {
		if err := o.beforeGone(ctx, t); err != nil {
			return result{}, err
		}
	}
	if item, err = o.replace(ctx, w); err != nil {
		return result{}, err
	}
	committed = true
	if w.Delete {
		return result{obj: deleted(t, old, &opts, item.ResourceVersion()), warnings: a.Warnings}, nil
	}
	return result{item: item, warnings: a.Warnings}, nil
}

// deleted is the answer when an object is gone: a Status, or the last state for those resources for which upstream has that.
func deleted(t *target, old *codec.Item, opts *metav1.DeleteOptions, version string) runtime.Object {
	stored := old.Object()
	if !answersDeleted[t.kind.GR()] || t.kind.GR() == deviceTaintRules && t.kind.Version == "v1" {
		return deletedStatus(t, stored)
	}
	obj := stored.DeepCopyObject().(catalog.Object)
	if t.kind.Grace != nil && obj.GetDeletionTimestamp() == nil {
		mark(obj, now(), t.kind.Grace(obj, opts.GracePeriodSeconds)) // upstream stores that before it deletes the object
	}
	obj.SetResourceVersion(version)
	return obj
}

func deletedStatus(t *target, obj catalog.Object) *metav1.Status {
	return success(&metav1.StatusDetails{Name: t.name, Group: t.kind.Group, Kind: t.kind.Resource, UID: obj.GetUID()})
}

var deviceTaintRules = schema.GroupResource{Group: "resource.k8s.io", Resource: "devicetaintrules"}

// answersDeleted are the resources for which upstream answers a DELETE with the object. Of DeviceTaintRules these are the versions
// before v1.
var answersDeleted = map[schema.GroupResource]bool{
	{Resource: "namespaces"}: true, {Resource: "persistentvolumeclaims"}: true, {Resource: "persistentvolumes"}: true, {Resource: "pods"}: true,
	{Resource: "podtemplates"}: true, {Resource: "resourcequotas"}: true, {Resource: "serviceaccounts"}: true, {Resource: "services"}: true,
	{Group: "storage.k8s.io", Resource: "csidrivers"}: true, {Group: "storage.k8s.io", Resource: "csinodes"}: true,
	{Group: "storage.k8s.io", Resource: "storageclasses"}: true, {Group: "storage.k8s.io", Resource: "volumeattachments"}: true,
	{Group: "storage.k8s.io", Resource: "volumeattributesclasses"}: true, {Group: "resource.k8s.io", Resource: "deviceclasses"}: true,
	{Group: "resource.k8s.io", Resource: "resourceclaims"}: true, {Group: "resource.k8s.io", Resource: "resourceclaimtemplates"}: true,
	{Group: "resource.k8s.io", Resource: "resourceslices"}: true, {Group: "resource.k8s.io", Resource: "resourcepoolstatusrequests"}: true,
	deviceTaintRules: true,
}

func checkPreconditions(t *target, p *metav1.Preconditions, old *codec.Item) error {
	if p == nil {
		return nil
	}
	if have := old.Object().GetUID(); p.UID != nil && *p.UID != have {
		return apierrors.NewConflict(t.kind.GR(), t.name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, have))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != old.ResourceVersion() {
		return apierrors.NewConflict(t.kind.GR(), t.name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, old.ResourceVersion()))
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
