package custom

import (
	"context"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sampan-io/sampan/catalog"
)

// Kind returns the kind of the resource that crd defines, in the version in which its objects are stored, with the
// other served versions. Its names are the accepted ones, or the names in the spec if none are accepted. It keeps
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
	var kind *catalog.Kind
	var hub *version
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Storage {
			var err error
			if hub, err = newVersion(crd, v, names, convert); err != nil {
				return nil, err
			}
			if kind, err = hub.kind(v); err != nil {
				return nil, err
			}
			kind.Singular, kind.ShortNames, kind.Categories = names.Singular, names.ShortNames, names.Categories
			kind.Namespaced = crd.Spec.Scope == apiextensionsv1.NamespaceScoped
			kind.Unserved, kind.Deprecated = !v.Served, deprecation(crd, v)
		}
	}
	if kind == nil {
		return nil, fmt.Errorf("custom: %s has no storage version", crd.Name)
	}
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Served && !v.Storage {
			other, err := newVersion(crd, v, names, convert)
			if err != nil {
				return nil, err
			}
			other.follow(hub)
			served, err := other.version(v)
			if err != nil {
				return nil, err
			}
			served.Deprecated = deprecation(crd, v)
			kind.Versions = append(kind.Versions, served)
		}
	}
	return kind, nil
}

// A version is a version of a custom resource.
type version struct {
	gvk          schema.GroupVersionKind
	list         string // the kind of lists
	resource     schema.GroupResource
	keepsUnknown bool // fields at any place: only definitions of older APIs have that
	source       *source
	scale        *scale
	hasStatus    bool // the subresource
	convert      Converter

	hub  *version // nil if it is this
	same bool     // conversion changes nothing but apiVersion, and the schema is that of the hub
}

func newVersion(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion, names apiextensionsv1.CustomResourceDefinitionNames, convert Converter) (*version, error) {
	source, err := newSource(v.Schema)
	if err != nil {
		return nil, fmt.Errorf("custom: the schema of %s in version %s: %w", crd.Name, v.Name, err)
	}
	out := &version{
		gvk:          schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: names.Kind},
		list:         names.ListKind,
		resource:     schema.GroupResource{Group: crd.Spec.Group, Resource: names.Plural},
		keepsUnknown: crd.Spec.PreserveUnknownFields,
		source:       source,
		convert:      convert,
	}
	if v.Subresources != nil {
		out.scale, out.hasStatus = newScale(v.Subresources.Scale), v.Subresources.Status != nil
	}
	return out, nil
}

// follow makes v a further version of hub. Versions with equal schemas share one.
func (v *version) follow(hub *version) {
	v.hub = hub
	if v.source.digest == hub.source.digest {
		v.source = hub.source
		_, v.same = v.convert.(Unconverted)
	}
}

// fromHub returns obj, of the hub, in this version, with its defaults. It shares unchanged parts with obj.
func (v *version) fromHub(obj catalog.Object) (*unstructured.Unstructured, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("custom: cannot convert a %T", obj)
	}
	if v.hub == nil {
		return u, nil
	}
	out, err := convertOne(v.convert, u, v.gvk.GroupVersion())
	if err != nil || v.same {
		return out, err
	}
	out = out.DeepCopy()
	if _, err := v.coerce(out, catalog.Coercion{}); err != nil {
		return nil, err
	}
	v.fill(out)
	return out, nil
}

// toHub returns obj, of this version, as an object of the hub, which may share parts with it.
func (v *version) toHub(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if v.hub == nil {
		return obj, nil
	}
	return convertOne(v.convert, obj, v.hub.gvk.GroupVersion())
}

func convertOne(convert Converter, obj *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error) {
	out, err := convert.Convert(context.Background(), []*unstructured.Unstructured{obj}, to)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// fill fills in the defaults of the version.
func (v *version) fill(obj *unstructured.Unstructured) {
	(&filler{left: maxDefaults}).fill(obj.Object, v.source.get().defaults)
}

// kind returns the version as the kind in which objects are stored.
func (v *version) kind(d *apiextensionsv1.CustomResourceDefinitionVersion) (*catalog.Kind, error) {
	served, err := v.version(d)
	if err != nil {
		return nil, err
	}
	return &catalog.Kind{
		GroupVersionKind: v.gvk,
		Resource:         v.resource.Resource,
		Conditional:      true,
		Generation:       true,
		New:              served.New,
		NewList:          served.NewList,
		Default:          served.Default,
		Prepare:          served.Prepare,
		Validate:         served.Validate,
		Warn:             warn,
		Columns:          served.Columns,
		Fields:           served.Selectable,
		Subresources:     served.Subresources,
		Defined: catalog.Defined{
			AnyFinalizer: true,
			Coerce:       served.Coerce, Convert: conversion(v.convert),
			Schema: served.Schema, SchemaDigest: served.SchemaDigest,
		},
	}, nil
}

// version returns the version as one of a kind.
func (v *version) version(d *apiextensionsv1.CustomResourceDefinitionVersion) (catalog.Version, error) {
	fields, err := selectable(d.SelectableFields)
	if err != nil {
		return catalog.Version{}, err
	}
	out := catalog.Version{
		GroupVersion: v.gvk.GroupVersion(),
		New:          func() catalog.Object { return newObject(v.gvk) },
		NewList:      func() runtime.Object { return newList(v.gvk.GroupVersion(), v.list) },
		Coerce: func(obj catalog.Object, c catalog.Coercion) ([]string, error) {
			u, ok := obj.(*unstructured.Unstructured)
			if !ok {
				return nil, fmt.Errorf("custom: cannot coerce a %T", obj)
			}
			return v.coerce(u, c)
		},
		Default:      catalog.Default(v.fill),
		Prepare:      func(catalog.Object, catalog.Object) {},
		Validate:     v.checked(v.validate),
		Whole:        true,
		ToHub:        catalog.Convert(v.toHub),
		FromHub:      func(obj catalog.Object) (catalog.Object, error) { return v.fromHub(obj) },
		Subresources: []catalog.Subresource{},
		Columns:      columns(d.AdditionalPrinterColumns),
		Selectable:   map[string]func(catalog.Object) string{},
		Schema:       func() *spec.Schema { return withSelectable(v.source.openAPI(), d.SelectableFields) },
		SchemaDigest: v.source.digest,
	}
	for _, f := range d.SelectableFields {
		out.SchemaDigest += " " + f.JSONPath
	}
	if v.hasStatus {
		out.Prepare = catalog.Prepare(keepStatus)
		out.Subresources = append(out.Subresources, catalog.Subresource{
			Name:  "status",
			Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{Prepare: catalog.Prepare(keepAllButStatus), Keeps: []string{"metadata"}, Validate: v.checked(v.validateStatus)},
		})
	}
	if v.scale != nil {
		out.Subresources = append(out.Subresources, v.scaleSubresource(v.checked(v.validate)))
	}
	for name, value := range fields {
		out.Selectable[name] = func(obj catalog.Object) string {
			u, err := v.fromHub(obj)
			if err != nil {
				return ""
			}
			return value(u.Object)
		}
	}
	return out, nil
}

// checked makes a [catalog.Kind.Validate] of a function of objects of this version.
func (v *version) checked(check func(ctx context.Context, obj, old *unstructured.Unstructured) field.ErrorList) func(ctx context.Context, obj, old catalog.Object) field.ErrorList {
	return func(ctx context.Context, obj, old catalog.Object) field.ErrorList {
		now, err := v.fromHub(obj)
		if err != nil {
			return field.ErrorList{field.InternalError(nil, err)}
		}
		var before *unstructured.Unstructured
		if old != nil {
			if before, err = v.fromHub(old); err != nil {
				return field.ErrorList{field.InternalError(nil, err)}
			}
		}
		return check(ctx, now, before)
	}
}

// keepStatus drops the status of a new object, and keeps the one that there is in an update.
func keepStatus(obj, old *unstructured.Unstructured) {
	delete(obj.Object, "status")
	if old == nil {
		return
	}
	if status, found := old.Object["status"]; found {
		obj.Object["status"] = runtime.DeepCopyJSONValue(status)
	}
}

// keepAllButStatus keeps everything that there is but the status. Who manages which field changes with the status, and
// the resource version is that of the replaced object.
func keepAllButStatus(obj, old *unstructured.Unstructured) {
	status, hasStatus := obj.Object["status"]
	managers, version := obj.GetManagedFields(), obj.GetResourceVersion()
	content := make(map[string]any, len(old.Object)+1)
	for name, value := range old.Object {
		if name != "status" {
			content[name] = runtime.DeepCopyJSONValue(value)
		}
	}
	if hasStatus {
		content["status"] = status
	}
	obj.Object = content
	obj.SetManagedFields(managers)
	obj.SetResourceVersion(version)
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

// withSelectable adds to a schema, for clients, by which fields its objects can be selected. It changes the schema.
func withSelectable(s *spec.Schema, fields []apiextensionsv1.SelectableField) *spec.Schema {
	if s == nil || len(fields) == 0 {
		return s
	}
	all := make([]any, len(fields))
	for i, f := range fields {
		all[i] = map[string]any{"fieldPath": strings.TrimPrefix(f.JSONPath, ".")}
	}
	s.AddExtension("x-kubernetes-selectable-fields", all)
	return s
}
