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
)

// A form is what the objects of one kind are made of. It is everything that the library's
// field manager asks about objects; there is one version of each kind.
type form struct {
	kind schema.GroupVersionKind
	typ  typed.ParseableType
	make func() runtime.Object // without a kind
}

// manager returns a field manager for writes to that subresource, which leave the given
// fields alone.
func (f *form) manager(subresource string, left []string) (*managedfields.FieldManager, error) {
	var filters map[fieldpath.APIVersion]fieldpath.Filter
	if len(left) > 0 {
		set := fieldpath.NewSet()
		for _, path := range left {
			parts := strings.Split(path, ".")
			names := make([]any, len(parts))
			for i, name := range parts {
				names[i] = name
			}
			set.Insert(fieldpath.MakePathOrDie(names...))
		}
		filters = map[fieldpath.APIVersion]fieldpath.Filter{
			fieldpath.APIVersion(f.kind.GroupVersion().String()): fieldpath.NewExcludeSetFilter(set),
		}
	}
	return managedfields.NewDefaultFieldManager(f, f, f, f, f.kind, f.kind.GroupVersion(), subresource, filters)
}

func (f *form) unknown(kind schema.GroupVersionKind) error {
	return runtime.NewNotRegisteredErrForKind("the API server", kind)
}

// ObjectToTyped implements [managedfields.TypeConverter].
func (f *form) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	if kind := obj.GetObjectKind().GroupVersionKind(); kind != f.kind {
		return nil, f.unknown(kind)
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return f.typ.FromUnstructured(u.Object, opts...)
	}
	return f.typ.FromStructured(obj, opts...)
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
	if kind, ok := gv.KindForGroupVersionKinds([]schema.GroupVersionKind{f.kind}); !ok || kind != f.kind {
		return nil, f.unknown(kind)
	}
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	out, err := f.New(f.kind)
	if err != nil {
		return nil, err
	}
	// Not by reflection from map to struct: that cuts numbers to what fits.
	text, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, out); err != nil {
		return nil, err
	}
	out.GetObjectKind().SetGroupVersionKind(f.kind)
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
	if kind != f.kind {
		return nil, f.unknown(kind)
	}
	obj := f.make()
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return obj, nil
}
