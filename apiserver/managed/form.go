package managed

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/sampan-io/sampan/catalog"
)

// A form is the schema of the objects of one kind. It is everything that the library's
// field manager asks about objects.
type form struct {
	kind     schema.GroupVersionKind // in the version of the write
	hub      schema.GroupVersionKind // in the version that is stored
	versions []version
}

// A version is one of the versions of the kind.
type version struct {
	kind   schema.GroupVersionKind
	served *catalog.Kind // nil if there is only this one
	typ    func() typed.ParseableType
	make   func() runtime.Object // without a kind
}

func (f *form) version(kind schema.GroupVersionKind) (version, error) {
	for _, v := range f.versions {
		if v.kind == kind {
			return v, nil
		}
	}
	return version{}, runtime.NewNotRegisteredErrForKind("the API server", kind)
}

// manager returns a field manager for writes of w.
func (f *form) manager(w *Write) (*managedfields.FieldManager, error) {
	var filter fieldpath.Filter
	if only := w.Sub.Only(); len(only) > 0 {
		var patterns []*fieldpath.SetMatcher
		for _, path := range only {
			m, err := fieldpath.PrefixMatcher(elements(path)...)
			if err != nil {
				return nil, err
			}
			patterns = append(patterns, m)
		}
		filter = fieldpath.NewIncludeMatcherFilter(patterns...)
	} else if left := w.Kind.LeftAlone(w.Sub); len(left) > 0 {
		set := fieldpath.NewSet()
		for _, path := range left {
			set.Insert(fieldpath.MakePathOrDie(elements(path)...))
		}
		filter = fieldpath.NewExcludeSetFilter(set)
	}
	var filters map[fieldpath.APIVersion]fieldpath.Filter
	if filter != nil {
		filters = map[fieldpath.APIVersion]fieldpath.Filter{}
		for _, v := range f.versions {
			filters[fieldpath.APIVersion(v.kind.GroupVersion().String())] = filter
		}
	}
	return managedfields.NewDefaultFieldManager(f, f, f, f, f.kind, f.hub.GroupVersion(), w.subresource(), filters)
}

// elements returns the elements of a path such as "spec.containers.*.resources".
func elements(path string) []any {
	var all []any
	for name := range strings.SplitSeq(path, ".") {
		if name == "*" {
			all = append(all, fieldpath.MatchAnyPathElement())
			continue
		}
		all = append(all, name)
	}
	return all
}

// ObjectToTyped implements [managedfields.TypeConverter].
func (f *form) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	v, err := f.version(obj.GetObjectKind().GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return v.typ().FromUnstructured(u.Object, opts...)
	}
	return v.typ().FromStructured(obj, opts...)
}

// TypedToObject implements [managedfields.TypeConverter].
func (f *form) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	fields, ok := v.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("a %s is an object", f.kind.Kind)
	}
	return &unstructured.Unstructured{Object: fields}, nil
}

// ConvertToVersion implements [runtime.ObjectConvertor]: objects come out as Go types.
func (f *form) ConvertToVersion(in runtime.Object, gv runtime.GroupVersioner) (runtime.Object, error) {
	var kinds []schema.GroupVersionKind
	for _, v := range f.versions {
		kinds = append(kinds, v.kind)
	}
	kind, _ := gv.KindForGroupVersionKinds(kinds)
	to, err := f.version(kind)
	if err != nil {
		return nil, err
	}
	from, err := f.version(in.GetObjectKind().GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if in, err = from.structured(in); err != nil || from.kind == to.kind {
		return in, err
	}
	obj, ok := in.(catalog.Object)
	if !ok {
		return nil, fmt.Errorf("managed: a %T has no metadata", in)
	}
	if obj, err = from.served.ToHub(obj); err != nil {
		return nil, err
	}
	return to.served.FromHub(obj)
}

// structured returns the object, of this version, as a Go type.
func (v version) structured(in runtime.Object) (runtime.Object, error) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok || v.served != nil && v.served.Untyped() {
		return in, nil
	}
	out := v.make()
	// Not by reflection from map to struct: that cuts numbers to what fits.
	text, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, out); err != nil {
		return nil, err
	}
	out.GetObjectKind().SetGroupVersionKind(v.kind)
	return out, nil
}

var errNotAsked = errors.New("managed: not a question of field management")

// Convert implements [runtime.ObjectConvertor]; it is never called.
func (*form) Convert(_, _, _ any) error { return errNotAsked }

// ConvertFieldLabel implements [runtime.ObjectConvertor]; it is never called.
func (*form) ConvertFieldLabel(schema.GroupVersionKind, string, string) (label, value string, err error) {
	return "", "", errNotAsked
}

// Default implements [runtime.ObjectDefaulter]. It does nothing: the API server sets defaults.
func (*form) Default(runtime.Object) {}

// New implements [runtime.ObjectCreater].
func (f *form) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	v, err := f.version(kind)
	if err != nil {
		return nil, err
	}
	obj := v.make()
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return obj, nil
}
