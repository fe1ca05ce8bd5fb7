package custom

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/catalog"
)

// Kind returns the kind of the resource that crd defines, in the version in which its objects are stored, with the
// other served versions. Its names are those that crd.Status.AcceptedNames has; those of its spec, if there are none. It keeps
// neither crd nor its decoded schemas. A nil convert is [Unconverted].
//
// An error means that crd has not been validated.
func Kind(crd *apiextensionsv1.CustomResourceDefinition, convert Converter) (*catalog.Kind, error) {
	if convert == nil {
		convert = Unconverted{}
	}
	names := crd.Status.AcceptedNames
	if names.Plural == "" || names.Kind == "" {
		names = crd.Spec.Names
	}
	var hub *catalog.Kind
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Storage {
			gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: names.Kind}
			hub = &catalog.Kind{
				GroupVersionKind: gvk,
				Resource:         names.Plural,
				Singular:         names.Singular,
				ShortNames:       names.ShortNames,
				Categories:       names.Categories,
				Namespaced:       crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
				Generation:       true,
				Unserved:         !v.Served,
				Convert:          conversion(convert),
				New:              func() catalog.Object { return newObject(gvk) },
				NewList:          func() runtime.Object { return newList(gvk.GroupVersion(), names.ListKind) },
				Columns:          []catalog.Column{catalog.Age()},
			}
		}
	}
	if hub == nil {
		return nil, fmt.Errorf("custom: %s has no storage version", crd.Name)
	}
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Served && !v.Storage {
			gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: names.Kind}
			hub.Versions = append(hub.Versions, catalog.Version{
				GroupVersion: gvk.GroupVersion(),
				New:          func() catalog.Object { return newObject(gvk) },
				NewList:      func() runtime.Object { return newList(gvk.GroupVersion(), names.ListKind) },
				ToHub:        converted(convert, hub.GroupVersion()),
				FromHub:      converted(convert, gvk.GroupVersion()),
			})
		}
	}
	return hub, nil
}

func newObject(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	return obj
}

func newList(gv schema.GroupVersion, kind string) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gv.WithKind(kind))
	return list
}

// converted makes a [catalog.Version.ToHub] or FromHub of convert.
func converted(convert Converter, to schema.GroupVersion) func(catalog.Object) (catalog.Object, error) {
	return catalog.Convert(func(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		out, err := convert.Convert(context.Background(), []*unstructured.Unstructured{obj}, to)
		if err != nil {
			return nil, err
		}
		return out[0], nil
	})
}

// conversion makes a [catalog.Kind.Convert] of convert.
func conversion(convert Converter) func(context.Context, []catalog.Object, schema.GroupVersion) ([]catalog.Object, error) {
	return func(ctx context.Context, objs []catalog.Object, to schema.GroupVersion) ([]catalog.Object, error) {
		in := make([]*unstructured.Unstructured, len(objs))
		for i, obj := range objs {
			u, ok := obj.(*unstructured.Unstructured)
			if !ok {
				return nil, fmt.Errorf("custom: cannot convert a %T", obj)
			}
			in[i] = u
		}
		converted, err := convert.Convert(ctx, in, to)
		if err != nil {
			return nil, err
		}
		out := make([]catalog.Object, len(converted))
		for i, u := range converted {
			out[i] = u
		}
		return out, nil
	}
}
