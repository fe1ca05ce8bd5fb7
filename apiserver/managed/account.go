package managed

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/sorting"
)

// Types has the schemas of objects. It is implemented by package apiserver/openapi.
type Types interface {
	Of(kind *catalog.Kind, obj runtime.Object) typed.ParseableType
}

// A FieldManager keeps the managed fields of objects. It has no state and is safe for concurrent
// use.
type FieldManager struct{ types Types }

// New returns a FieldManager for objects of those types.
func New(t Types) *FieldManager { return &FieldManager{t} }

// A Write is the manager, the kind and the subresource of a write.
type Write struct {
	Kind    *catalog.Kind
	Sub     *catalog.Subresource // nil: the object itself
	Manager string
	Now     time.Time
}

func (w *Write) subresource() string {
	if w.Sub == nil {
		return ""
	}
	return w.Sub.Name
}

// objects returns the form of the kind's own objects.
func (m *FieldManager) objects(w *Write) *form {
	f := &form{kind: w.Kind.GroupVersionKind, hub: w.Kind.Hub().GroupVersionKind}
	served := w.Kind.Served()
	if hub := w.Kind.Hub(); hub.Unserved {
		served = append(served, hub)
	}
	for _, k := range served {
		f.versions = append(f.versions, version{
			kind: k.GroupVersionKind, served: k,
			typ:  func() typed.ParseableType { return m.types.Of(k, k.New()) },
			make: func() runtime.Object { return k.New() },
		})
	}
	return f
}

// Apply returns live with config merged into it and the account of that. Live is nil
// or a stored object of the hub; the result is of the version of w and has no defaults yet. Errors are API status errors: a conflict
// with other managers unless force, a bad request if config does not have the form of the
// kind.
func (m *FieldManager) Apply(w Write, live catalog.Object, config *unstructured.Unstructured, force bool) (catalog.Object, error) {
	f := m.objects(&w)
	var from runtime.Object
	if live != nil {
		from = live
	} else {
		empty, err := f.New(f.hub)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		from = empty
	}
	merged, err := f.apply(&w, from, config, force)
	if err != nil {
		return nil, err
	}
	out, err := w.Kind.FromHub(merged.(catalog.Object))
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return out, nil
}

// apply is Apply for objects of the form.
func (f *form) apply(w *Write, live runtime.Object, config *unstructured.Unstructured, force bool) (metav1.Object, error) {
	if work(reflect.ValueOf(config.Object)) > mostWork || work(reflect.ValueOf(live)) > mostWork {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("server-side apply supports maps and lists of up to %d fields and items, and fewer in each if there are many", Largest))
	}
	m, err := f.manager(w)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	out, err := m.Apply(live, config, w.Manager, force)
	if err != nil && f.harmless(err, config) {
		out, err = m.Apply(live, config, w.Manager, true)
	}
	if err != nil {
		return nil, refused(err)
	}
	merged, ok := out.(metav1.Object)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("managed: a %T has no metadata", out))
	}
	merged.SetManagedFields(w.dated(merged.GetManagedFields()))
	return merged, nil
}

// harmless reports whether a conflict is about nothing that config has. A map that was emptied is
// not kept, yet its manager still owns it, so that its first new member would be a conflict.
func (f *form) harmless(err error, config *unstructured.Unstructured) bool {
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		return false
	}
	has := map[string]bool{} // in all versions: a conflict has the path of the version in which the other manager wrote
	for _, v := range f.versions {
		var in runtime.Object = config
		var err error
		if v.kind != f.kind {
			in, err = f.ConvertToVersion(config, v.kind.GroupVersion())
		}
		if err != nil {
			return false
		}
		typed, err := f.ObjectToTyped(in)
		if err != nil {
			return false
		}
		set, err := typed.ToFieldSet()
		if err != nil {
			return false
		}
		set.Iterate(func(p fieldpath.Path) { has[p.String()] = true })
	}
	return !slices.ContainsFunc(status.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool { return has[c.Field] })
}

// longestRefusal bounds the message of an error that lists each field that is wrong.
const longestRefusal = 4 << 10

// refused turns an error of the library into an API status error, with conflicts in order.
// One without a status is about the configuration that was applied.
func refused(err error) error {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		if d := status.ErrStatus.Details; d != nil {
			sorting.Slice(d.Causes, func(a, b metav1.StatusCause) int {
				return cmp.Or(strings.Compare(a.Message, b.Message), strings.Compare(a.Field, b.Field))
			})
		}
		return status
	}
	text := err.Error()
	if len(text) > longestRefusal {
		text = text[:longestRefusal] + "…"
	}
	return apierrors.NewBadRequest(text)
}

// Update returns the account of obj after a write that was no apply: live became obj, both of the hub. Obj
// holds the account that the client sent. Live is nil for a creation. An account
// that says nothing counts as none sent, and one that is empty as an end of the account.
// If the account cannot be kept, that of live is returned.
func (m *FieldManager) Update(w Write, live, obj catalog.Object) []metav1.ManagedFieldsEntry {
	f := m.objects(&w)
	if live == nil {
		empty, err := f.New(f.hub)
		if err != nil {
			return nil
		}
		return f.update(&w, empty, obj, nil)
	}
	return f.update(&w, live, obj, live.GetManagedFields())
}

func (f *form) update(w *Write, live, obj runtime.Object, otherwise []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	if work(reflect.ValueOf(live)) > mostWork || work(reflect.ValueOf(obj)) > mostWork {
		return otherwise
	}
	m, err := f.manager(w)
	if err != nil {
		return otherwise
	}
	fresh := shallow(obj) // the library takes the account out of it
	fresh.GetObjectKind().SetGroupVersionKind(f.hub)
	out, err := m.Update(live, fresh, w.Manager)
	if err != nil {
		return otherwise
	}
	return w.dated(out.(metav1.Object).GetManagedFields())
}

// shallow copies the struct that obj points to.
func shallow(obj runtime.Object) runtime.Object {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		content := maps.Clone(u.Object)
		if meta, ok := content["metadata"].(map[string]any); ok {
			content["metadata"] = maps.Clone(meta)
		}
		return &unstructured.Unstructured{Object: content}
	}
	from := reflect.ValueOf(obj).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	return to.Interface().(runtime.Object)
}

// dated returns the entries with times in whole seconds (M3). An entry that the library
// left without one is new.
func (w *Write) dated(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	for i := range entries {
		at := w.Now
		if t := entries[i].Time; t != nil {
			at = t.Time
		}
		entries[i].Time = new(metav1.NewTime(at.UTC().Truncate(time.Second)))
	}
	return entries
}

// The places of the number of replicas, in scales and in the kinds that have one.
var replicas = fieldpath.MakePathOrDie("spec", "replicas")

// view returns the form of what a subresource shows of its parent, and the account of the
// parent as one of that.
func (m *FieldManager) view(w *Write, parent catalog.Object) (*form, *managedfields.ScaleHandler, []metav1.ManagedFieldsEntry, error) {
	body := w.Sub.Body()
	f := &form{kind: body.Kind, hub: body.Kind, versions: []version{{
		kind: body.Kind, make: body.New,
		typ: func() typed.ParseableType { return m.types.Of(w.Kind, body.New()) },
	}}}
	gv := w.Kind.GroupVersion()
	h := managedfields.NewScaleHandler(parent.GetManagedFields(), gv, managedfields.ResourcePathMappings{gv.String(): replicas})
	entries, err := h.ToSubresource()
	return f, h, entries, err
}

// ApplyView is Apply for a subresource that shows a part of its parent, a scale: it
// returns the view with config merged into it, and the account of the parent.
func (m *FieldManager) ApplyView(w Write, parent catalog.Object, shown runtime.Object, config *unstructured.Unstructured, force bool) (runtime.Object, []metav1.ManagedFieldsEntry, error) {
	f, h, entries, err := m.view(&w, parent)
	if err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	live := shown.DeepCopyObject()
	live.(metav1.Object).SetManagedFields(entries)
	merged, err := f.apply(&w, live, config, force)
	if err != nil {
		return nil, nil, err
	}
	account, err := h.ToParent(merged.GetManagedFields())
	if err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	merged.SetManagedFields(nil)
	return merged.(runtime.Object), w.dated(account), nil
}

// UpdateView returns the account of the parent after a write through such a subresource
// that was no apply: before became after.
func (m *FieldManager) UpdateView(w Write, parent catalog.Object, before, after runtime.Object) []metav1.ManagedFieldsEntry {
	otherwise := parent.GetManagedFields()
	f, h, entries, err := m.view(&w, parent)
	if err != nil {
		return otherwise
	}
	live := before.DeepCopyObject()
	live.(metav1.Object).SetManagedFields(entries)
	account, err := h.ToParent(f.update(&w, live, after, entries))
	if err != nil {
		return otherwise
	}
	return w.dated(account)
}

// Largest is the largest number of fields or items of a map or list in a merged object, if
// it is the only one (M4): the library puts each into its place among the others.
const Largest = 5000

const mostWork = Largest * Largest

// work returns the sum of the squares of the numbers of items in all maps and lists in v.
func work(v reflect.Value) int {
	sum := 0
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			sum = work(v.Elem())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.Time]() {
			return 0
		}
		for _, f := range v.Fields() {
			sum += work(f)
		}
	case reflect.Map:
		sum = v.Len() * v.Len()
		if !plain(v.Type().Elem()) {
			for iter := v.MapRange(); iter.Next(); {
				sum += work(iter.Value())
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return 0
		}
		sum = v.Len() * v.Len()
		if !plain(v.Type().Elem()) {
			for i := range v.Len() {
				sum += work(v.Index(i))
			}
		}
	default: // scalars
	}
	return sum
}

// plain reports whether values of the type have nothing in them that has items.
func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Struct, reflect.Map, reflect.Slice, reflect.Array:
		return false
	default:
		return true
	}
}
