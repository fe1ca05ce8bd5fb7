package operation

import (
	"context"
	"errors"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/patch"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// A modification is one request to change an object.
type modification struct {
	Target
	operation admission.Operation
	dryRun    bool
	fields    fieldsUpdate

	// propose returns the object as the request wants it, given what is stored. It
	// is called again when the object changed in the meantime. The object
	// belongs to the modification. With a subresource that has a body of its own,
	// body is that; otherwise it is nil.
	propose func(old *codec.Item) (obj catalog.Object, body runtime.Object, err error)

	// act makes the object from the body after the plug-ins have changed that. If it is nil, the object is the proposed
	// one, which is nil otherwise.
	act func(old *codec.Item, body runtime.Object) (catalog.Object, error)

	patched bool // the request is a patch
	lost    claimRace
}

// Update replaces an object, or a subresource's view of it, with a body that
// belongs to the request.
func (o *Operations) Update(ctx context.Context, t Target, body runtime.Object, opts metav1.UpdateOptions) (Result, error) {
	if err := o.Allow(ctx, &t, VerbUpdate, nil, t.Name); err != nil {
		return Result{}, err
	}
	if err := checkOptions("UpdateOptions", metavalidation.ValidateUpdateOptions(&opts)); err != nil {
		return Result{}, err
	}
	t.options = updateOptions(opts)
	dryRun := len(opts.DryRun) > 0
	if v, ok := t.view(); ok {
		return o.modify(ctx, &modification{
			Target: t, operation: admission.Update, dryRun: dryRun, fields: o.updateFields(&t, opts.FieldManager),
			propose: func(old *codec.Item) (catalog.Object, runtime.Object, error) { return t.apply(v.Apply, old, body) },
		})
	}
	obj, err := t.accept(body)
	if err != nil {
		return Result{}, err
	}
	if t.Kind.CreatedByUpdate && t.Sub == nil {
		if _, err := o.Lookup(ctx, &t); apierrors.IsNotFound(err) {
			absent := t
			absent.creates(opts.DryRun, opts.FieldManager, opts.FieldValidation)
			made, err := o.createByUpdate(ctx, absent, obj.DeepCopyObject().(catalog.Object), creation{manager: opts.FieldManager, dryRun: dryRun})
			if !apierrors.IsAlreadyExists(err) {
				return made, err
			}
		}
	}
	// With a resource version a lost race is a conflict, so the body need not be kept.
	once := obj.GetResourceVersion() != "" && obj.GetResourceVersion() != "0"
	if once {
		if err := o.shows(ctx, obj.GetResourceVersion()); err != nil {
			return Result{}, err
		}
	}
	tried := false
	return o.modify(ctx, &modification{
		Target: t, operation: admission.Update, dryRun: dryRun, fields: o.updateFields(&t, opts.FieldManager),
		propose: func(*codec.Item) (catalog.Object, runtime.Object, error) {
			if once && tried {
				return nil, nil, modified(t.Kind.GR(), t.Name)
			}
			if tried = true; once {
				return obj, nil, nil
			}
			return obj.DeepCopyObject().(catalog.Object), nil, nil
		},
	})
}

// createByUpdate makes the object of an update. The user needs the right to create it.
func (o *Operations) createByUpdate(ctx context.Context, t Target, obj catalog.Object, how creation) (Result, error) {
	if uid := obj.GetUID(); uid != "" {
		return Result{}, apierrors.NewConflict(t.Kind.GR(), t.Name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: ", uid)) //nolint:staticcheck // the words of Kubernetes
	}
	if err := checkNamespace(&t, obj); err != nil {
		return Result{}, err
	}
	if err := checkName(&t, obj); err != nil {
		return Result{}, err
	}
	t.Allowed = false
	if err := o.Allow(ctx, &t, VerbCreate, nil, t.Name); err != nil {
		return Result{}, err
	}
	obj.SetResourceVersion("")
	return o.createOnce(ctx, t, obj, how)
}

// act changes an object by a posted body, such as a binding. It is not recorded in the managed
// fields.
func (o *Operations) act(ctx context.Context, t *Target, action catalog.Action, body runtime.Object, dryRun bool) (Result, error) {
	r, err := o.modify(ctx, &modification{
		Target: *t, operation: admission.Create, dryRun: dryRun, fields: keepFields,
		propose: func(*codec.Item) (catalog.Object, runtime.Object, error) {
			return nil, body.DeepCopyObject(), nil // another try starts from the client's body
		},
		act: func(old *codec.Item, body runtime.Object) (catalog.Object, error) {
			obj, _, err := t.apply(action.Apply, old, body)
			return obj, err
		},
	})
	if err != nil {
		return Result{Warnings: r.Warnings}, err
	}
	return done(r.Warnings), nil
}

// apply puts the body of a subresource into a copy of its parent, by change.
func (t *Target) apply(change func(catalog.Object, runtime.Object) error, old *codec.Item, body runtime.Object) (catalog.Object, runtime.Object, error) {
	if m, ok := body.(metav1.Object); ok {
		if err := checkNamespace(t, m); err != nil {
			return nil, nil, err
		}
		if _, isView := t.view(); isView || m.GetName() != "" {
			if err := checkName(t, m); err != nil {
				return nil, nil, err
			}
		}
		if err := checkVersion(t, m, old); err != nil {
			return nil, nil, err
		}
	}
	obj := old.Object().DeepCopyObject().(catalog.Object)
	if err := change(obj, body); err != nil {
		return nil, nil, err
	}
	return obj, body, nil
}

// Patch changes an object, or a subresource's view of it. Validation looks at
// the object that comes out; its warnings are returned.
func (o *Operations) Patch(ctx context.Context, t Target, kind types.PatchType, p []byte, opts metav1.PatchOptions) (r Result, warnings []string, err error) {
	if err := o.Allow(ctx, &t, VerbPatch, nil, t.Name); err != nil {
		return Result{}, nil, err
	}
	if err := checkOptions("PatchOptions", metavalidation.ValidatePatchOptions(&opts, kind)); err != nil {
		return Result{}, nil, err
	}
	t.patches(&opts)
	if _, err := patch.TypeOf(string(kind), t.PatchTypes()); err != nil {
		return Result{}, nil, err
	}
	if kind == types.ApplyYAMLPatchType {
		return o.applyConfiguration(ctx, t, p, opts)
	}
	into := func(before []byte, obj runtime.Object, want schema.GroupVersionKind) error {
		after, err := patch.Apply(kind, p, before, obj)
		if err != nil {
			return err
		}
		warnings, err = codec.Decode(ctx, codec.JSON, after, obj, want, codec.ValidationOf(opts.FieldValidation))
		if err == nil {
			var unknown []string
			unknown, err = t.Coerce(obj, codec.ValidationOf(opts.FieldValidation))
			warnings = append(warnings, unknown...)
		}
		if err != nil && codec.ValidationOf(opts.FieldValidation) != codec.Strict {
			// The kind of patch cannot be seen from the fault alone.
			err = apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), string(p), err.Error())})
		}
		return err
	}
	m := &modification{Target: t, operation: admission.Update, dryRun: len(opts.DryRun) > 0, patched: true, fields: o.updateFields(&t, opts.FieldManager)}
	m.propose = func(old *codec.Item) (catalog.Object, runtime.Object, error) {
		if v, ok := t.view(); ok {
			before, err := codec.Encode(codec.Media{}, show(v, old.Object()))
			if err != nil {
				return nil, nil, apierrors.NewInternalError(err)
			}
			body := v.New()
			if err := into(before, body, v.Kind); err != nil {
				return nil, nil, err
			}
			return t.apply(v.Apply, old, body)
		}
		shown, err := old.In(ctx, t.Kind)
		if err != nil {
			return nil, nil, StatusError(err)
		}
		before, err := shown.JSON()
		if err != nil {
			return nil, nil, apierrors.NewInternalError(err)
		}
		written := t.Kind.New()
		if err := into(before, written, t.Kind.GroupVersionKind); err != nil {
			return nil, nil, err
		}
		obj, err := t.accept(written)
		return obj, nil, err
	}
	r, err = o.modify(ctx, m)
	return r, warnings, err
}

// modify makes a change and answers with the object, or the view of it, after that.
func (o *Operations) modify(ctx context.Context, m *modification) (Result, error) {
	r, err := o.untilWon(ctx, &m.Target, func() (Result, error) { return o.modifyOnce(ctx, m) })
	if v, ok := m.view(); ok && err == nil {
		return Result{Made: show(v, r.Object().(catalog.Object)), Warnings: r.Warnings}, nil
	}
	return r, err
}

func (o *Operations) modifyOnce(ctx context.Context, m *modification) (r Result, err error) {
	old, err := o.Lookup(ctx, &m.Target)
	if err != nil {
		return Result{}, err
	}
	obj, body, err := m.propose(old)
	if err != nil {
		return Result{}, err
	}
	stored := old.Object()
	a := m.attributes(ctx, m.operation, m.dryRun)
	committed := false
	defer func() { r.end(&a, committed) }()
	if body == nil {
		if err := m.complete(obj, old, &a); err != nil {
			return Result{}, err
		}
	}
	if m.act == nil {
		// What plug-ins and webhooks change belongs to no manager.
		if err := m.fields(obj, old); err != nil {
			return Result{}, apierrors.NewInternalError(err)
		}
	}
	a.Object, a.Old = obj, stored
	if shown, ok := body.(catalog.Object); ok {
		a.Object = shown
	}
	if err := o.admission.Admit(ctx, &a); err != nil {
		return Result{}, err
	}
	if body == nil {
		obj = a.Object
		if o.admission.Mutates() && m.Sub == nil && m.Kind.Default != nil {
			m.Kind.Default(obj)
		}
	}
	if body == nil {
		a.Warnings = append(a.Warnings, dropDuplicateOwners(obj, afterAdmission)...)
	}
	if m.act != nil {
		if obj, err = m.act(old, body); err != nil {
			return Result{}, err
		}
		if err := m.fields(obj, old); err != nil {
			return Result{}, apierrors.NewInternalError(err)
		}
	} else if a.Changed {
		if err := m.repeat(obj, stored, body); err != nil {
			return Result{}, err
		}
	}
	if errs := m.validate(ctx, obj, stored); len(errs) > 0 {
		return Result{}, refused(ctx, &m.Target, errs)
	}
	changed := m.countsGeneration() && specChanged(obj, stored)
	a.Warnings = append(a.Warnings, m.warnings(obj, stored, changed)...)
	if err := o.admission.Validate(ctx, &a); err != nil {
		return Result{}, err
	}
	if changed || m.countsGeneration() && m.Kind.Counted != nil && !maps.Equal(m.Kind.Counted(obj), m.Kind.Counted(stored)) {
		obj.SetGeneration(stored.GetGeneration() + 1)
	}
	item, err := newItem(&m.Target, obj, old)
	if err != nil {
		return Result{}, err
	}
	w := store.Write{
		Key: m.Key(), Value: item, Expect: old.Revision(),
		Delete: gone(m.Kind, obj), Frees: obj.GetDeletionTimestamp() != nil, Reserve: reserveOf(&m.Target, true), Account: accountOf(&m.Target, obj),
	}
	if w.Delete {
		w.Volatile = m.Kind.Loses(nil, stored)
	} else {
		w.Volatile = m.Kind.Loses(obj, stored)
	}
	switch {
	case m.dryRun:
		obj.SetResourceVersion(old.ResourceVersion())
		return Result{Made: obj}, nil
	case !w.Delete && item.Same(old):
		return Result{Item: old}, nil // S2
	}
	if w.Delete {
		if err := o.beforeGone(ctx, &m.Target); err != nil {
			return Result{}, err
		}
	}
	if item, err = o.replace(ctx, &m.Target, &a, w); err != nil {
		if e, claimed := errors.AsType[*store.ClaimError](err); claimed {
			if err = m.lost.again(ctx, &m.Target, m.Name, e); err == nil {
				err = &racedError{seen: w.Expect}
			}
		}
		return Result{}, err
	}
	committed = true
	return Result{Item: item}, nil
}

// warnings returns the warnings of the kind or of the part of the object. Of kinds with a generation only changes
// that it counts have any.
func (m *modification) warnings(obj, stored catalog.Object, changed bool) []string {
	if part, ok := m.Shape().(catalog.Part); ok && part.Warn != nil {
		return part.Warn(obj, stored)
	}
	if m.Sub != nil || m.Kind.Warn == nil || m.Kind.Generation && !changed {
		return nil
	}
	return m.Kind.Warn(obj, stored)
}

// complete checks that obj is for the object that old is, fills in the metadata
// that clients may leave out or must not change, defaults and prepares it.
func (m *modification) complete(obj catalog.Object, old *codec.Item, a *admission.Attributes) error {
	if err := checkName(&m.Target, obj); err != nil {
		return err
	}
	if err := checkNamespace(&m.Target, obj); err != nil {
		return err
	}
	if rv := obj.GetResourceVersion(); m.Kind.Conditional && (rv == "" || rv == "0") {
		return apierrors.NewInvalid(schema.GroupKind{Group: m.Kind.Group, Kind: m.Kind.Resource}, m.Name,
			field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
	}
	if err := checkVersion(&m.Target, obj, old); err != nil {
		return err
	}
	stored := old.Object()
	obj.SetUID(stored.GetUID())
	obj.SetResourceVersion(old.ResourceVersion())
	// Times of the server's own are not the client's to change. A wrong time of creation is ignored, and a deletion that is not under
	// way is a fault, as upstream.
	obj.SetCreationTimestamp(stored.GetCreationTimestamp())
	if t := stored.GetDeletionTimestamp(); t != nil {
		obj.SetDeletionTimestamp(t)
	}
	if obj.GetDeletionGracePeriodSeconds() == nil {
		obj.SetDeletionGracePeriodSeconds(stored.GetDeletionGracePeriodSeconds())
	}
	obj.SetGeneration(stored.GetGeneration())
	if !m.patched {
		a.Warnings = append(a.Warnings, dropDuplicateOwners(obj, "")...)
	}
	if m.Kind.Default != nil {
		m.Kind.Default(obj)
	}
	if part, ok := m.Shape().(catalog.Part); ok {
		part.Prepare(obj, stored)
		if m.Kind.Default != nil {
			m.Kind.Default(obj) // what comes from the parts that were carried over, as upstream when it reads the object
		}
	} else if m.Sub == nil && m.Kind.Prepare != nil {
		m.Kind.Prepare(obj, stored)
	}
	return nil
}

// repeat does to an object that a webhook or policy changed what was done to it before: this endpoint changes only its own part.
func (m *modification) repeat(obj, stored catalog.Object, body runtime.Object) error {
	if v, ok := m.view(); ok {
		return v.Apply(obj, body)
	}
	obj.SetGeneration(stored.GetGeneration())
	if part, ok := m.Shape().(catalog.Part); ok {
		part.Prepare(obj, stored)
	} else if m.Sub == nil && m.Kind.Prepare != nil {
		m.Kind.Prepare(obj, stored)
	}
	return nil
}

func (m *modification) validate(ctx context.Context, obj, stored catalog.Object) field.ErrorList {
	check := m.Kind.Validate
	switch shape := m.Shape().(type) {
	case catalog.Part:
		check = shape.Validate
	case catalog.View:
		check = shape.Validate
	case catalog.Action:
		check = nil
	}
	errs := catalog.ValidateMeta(m.Kind, obj, stored)
	if check != nil {
		errs = append(errs, check(ctx, obj, stored)...)
	}
	return errs
}

func (m *modification) countsGeneration() bool {
	_, isView := m.view()
	part, _ := m.Shape().(catalog.Part)
	return m.Kind.Generation && (m.Sub == nil || isView || part.Counts)
}

// gone reports whether nothing holds an object any more whose deletion was asked for.
func gone(kind *catalog.Kind, obj catalog.Object) bool {
	if obj.GetDeletionTimestamp() == nil || len(obj.GetFinalizers()) > 0 || kind.Held != nil && kind.Held(obj) {
		return false
	}
	grace := obj.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}
