package operation

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/managed"
	"github.com/sampan-io/sampan/catalog"
)

// write returns the write of a request, for its managed fields.
func (o *Operations) write(t *Target, manager string) managed.Write {
	return managed.Write{Kind: t.Kind, Sub: t.Sub, Manager: managed.Name(manager, t.Agent), Now: time.Now()}
}

// A fieldsUpdate sets the managed fields of obj, which is to replace the object in old (decision
// 0015): it is [keepFields], [fieldsAreSet] or made by [Operations.updateFields].
type fieldsUpdate func(obj catalog.Object, old *codec.Item) error

// keepFields is for writes that are not recorded.
func keepFields(obj catalog.Object, old *codec.Item) error {
	obj.SetManagedFields(old.Object().GetManagedFields())
	return nil
}

// fieldsAreSet is for an apply, which merges the object and its managed fields together.
func fieldsAreSet(catalog.Object, *codec.Item) error { return nil }

// updateFields is for a write by a manager. Objects have managed fields from their first apply on,
// or from their creation if that named a manager; those of others stay empty.
func (o *Operations) updateFields(t *Target, manager string) fieldsUpdate {
	return func(obj catalog.Object, old *codec.Item) error {
		stored := old.Object()
		v, isView := t.view()
		if len(stored.GetManagedFields()) == 0 && (isView || obj.GetManagedFields() == nil) {
			return keepFields(obj, old)
		}
		if isView {
			obj.SetManagedFields(o.managers.UpdateView(o.write(t, manager), stored, show(v, stored), show(v, obj)))
			return nil
		}
		stored, err := old.Fresh()
		if err != nil {
			return err
		}
		obj.SetManagedFields(o.managers.Update(o.write(t, manager), stored, obj))
		return nil
	}
}

// newItem encodes an object that is to replace what old holds. Managed fields that differ in
// times alone are no change, and if there is no other either, the item is the same as old (S2).
func newItem(t *Target, obj catalog.Object, old *codec.Item) (*codec.Item, error) {
	kind, limit := t.Kind, t.largest()
	fresh, kept := obj.GetManagedFields(), old.Object().GetManagedFields()
	if len(fresh) == 0 || !catalog.SameManagers(fresh, kept) {
		return boundedItem(kind, obj, len(old.Bytes()), limit)
	}
	obj.SetManagedFields(kept)
	item, err := codec.NewItem(kind, obj)
	if err != nil || item.Same(old) {
		return item, err
	}
	obj.SetManagedFields(fresh)
	return boundedItem(kind, obj, len(old.Bytes()), limit)
}

// How many bytes an object may have as it is stored.
const (
	// largestObject is as many as a body, and twice as many as with etcd. Defaults can make it eight times as large as the
	// body.
	largestObject = 3 << 20

	// statusRoom is the number of bytes that a write of the status may add, so that there is one for the largest object as well.
	statusRoom = 256 << 10
)

// largest returns how many bytes the object may have after a write.
func (t *Target) largest() int {
	if t.SubName() == "status" {
		return largestObject + statusRoom
	}
	return largestObject
}

// boundedItem encodes an object. It is an error if that is too large, and larger than it was.
func boundedItem(kind *catalog.Kind, obj catalog.Object, before, limit int) (*codec.Item, error) {
	item, err := codec.NewItem(kind, obj)
	if err != nil {
		return nil, err
	}
	if n := len(item.Bytes()); n > limit && n > before {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object would have %d bytes in the store, limit is %d", n, limit))
	}
	return item, nil
}

// applyConfiguration makes the fields that a configuration has those of the manager who
// applies it, and the object what it then is: server-side apply. An object that is not
// there is made.
func (o *Operations) applyConfiguration(ctx context.Context, t Target, body []byte, opts metav1.PatchOptions) (Result, []string, error) {
	fields, warnings, err := codec.DecodeConfiguration(ctx, body, codec.ValidationOf(opts.FieldValidation))
	if err != nil {
		return Result{}, nil, err
	}
	if !t.Kind.Untyped() {
		if err := codec.CheckQuantities(fields, t.Kind.New()); err != nil {
			return Result{}, nil, apierrors.NewBadRequest("error decoding patch: " + err.Error())
		}
	}
	config := &unstructured.Unstructured{Object: fields}
	force := opts.Force != nil && *opts.Force
	dryRun := len(opts.DryRun) > 0
	m := &modification{Target: t, operation: admission.Update, dryRun: dryRun, patched: true, fields: fieldsAreSet}
	m.propose = func(old *codec.Item) (catalog.Object, runtime.Object, error) {
		w := o.write(&t, opts.FieldManager)
		v, isView := t.view()
		if !isView {
			stored, err := old.Fresh()
			if err != nil {
				return nil, nil, apierrors.NewInternalError(err)
			}
			obj, err := o.applied(&t, w, stored, config, force)
			return obj, nil, err
		}
		body, entries, err := o.managers.ApplyView(w, old.Object(), show(v, old.Object()), config, force)
		if err != nil {
			return nil, nil, err
		}
		obj, body, err := t.apply(v.Apply, old, body)
		if err == nil {
			obj.SetManagedFields(entries)
		}
		return obj, body, err
	}
	for {
		_, err := o.Lookup(ctx, &t)
		missing := apierrors.IsNotFound(err) && t.Sub == nil
		var r Result
		if missing {
			r, err = o.createApplied(ctx, t, config, opts)
		} else {
			r, err = o.modify(ctx, m)
		}
		// Another request may have created or deleted the object in between.
		if ctx.Err() == nil && (missing && apierrors.IsAlreadyExists(err) || !missing && t.Sub == nil && apierrors.IsNotFound(err) && o.gone(ctx, &t)) {
			continue
		}
		return r, warnings, err
	}
}

// applied returns a stored object, or a new one if it is nil, with a configuration merged into it, as an object of the
// hub.
func (o *Operations) applied(t *Target, w managed.Write, stored catalog.Object, config *unstructured.Unstructured, force bool) (catalog.Object, error) {
	obj, err := o.managers.Apply(w, stored, config, force)
	if err == nil {
		err = t.coerceApplied(obj, config)
	}
	if err != nil {
		return nil, err
	}
	return t.accept(obj)
}

// gone reports whether there is no such object.
func (o *Operations) gone(ctx context.Context, t *Target) bool {
	_, err := o.Lookup(ctx, t)
	return apierrors.IsNotFound(err)
}

// createApplied makes the object that a configuration describes. Who may patch must be
// allowed to create as well.
func (o *Operations) createApplied(ctx context.Context, t Target, config *unstructured.Unstructured, opts metav1.PatchOptions) (Result, error) {
	obj, err := o.applied(&t, o.write(&t, opts.FieldManager), nil, config, false)
	if err != nil {
		return Result{}, err
	}
	if uid := obj.GetUID(); uid != "" {
		return Result{}, apierrors.NewConflict(t.Kind.GR(), t.Name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if rv := obj.GetResourceVersion(); rv != "" && rv != "0" {
		return Result{}, modified(t.Kind.GR(), t.Name)
	}
	obj.SetResourceVersion("")
	if err := checkNamespace(&t, obj); err != nil {
		return Result{}, err
	}
	if err := checkName(&t, obj); err != nil {
		return Result{}, err
	}
	t.Allowed = false
	t.creates(opts.DryRun, opts.FieldManager, opts.FieldValidation)
	if err := o.Allow(ctx, &t, VerbCreate, nil, t.Name); err != nil {
		return Result{}, err
	}
	return o.createOnce(ctx, t, obj, creation{applied: true, dryRun: len(opts.DryRun) > 0})
}
