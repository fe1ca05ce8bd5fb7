package openapi

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sampan-io/sampan/catalog"
)

// Names of members of schemas.
const (
	extensionKind     = "x-kubernetes-group-version-kind"
	extensionEmbedded = "x-kubernetes-embedded-resource"
	extensionKeep     = "x-kubernetes-preserve-unknown-fields"
	extensionListType = "x-kubernetes-list-type"
	extensionListKeys = "x-kubernetes-list-map-keys"
	extensionMapType  = "x-kubernetes-map-type"
)

// customName returns the name of the schema of a kind without a Go type: its group, turned round, its version and itself.
func customName(gvk schema.GroupVersionKind) string {
	parts := strings.Split(gvk.Group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, gvk.Version, gvk.Kind), ".")
}

// custom returns the schema of the objects of a kind without a Go type: that of its definition, with the fields that
// every object has.
func custom(k *catalog.Kind) *spec.Schema {
	var s *spec.Schema
	if k.Schema != nil {
		s = k.Schema()
	}
	if s == nil {
		s = &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}}
		s.AddExtension(extensionKeep, true)
	}
	embed(s)
	everyObject(s)
	return s
}

// everyObject adds the fields of every object to a schema.
func everyObject(s *spec.Schema) {
	texts := metav1.TypeMeta{}.SwaggerDoc()
	for _, name := range []string{"apiVersion", "kind"} {
		s.SetProperty(name, *spec.StringProperty().WithDescription(texts[name]))
	}
	meta := spec.Schema{SchemaProps: spec.SchemaProps{
		Description: metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"],
		AllOf:       []spec.Schema{*spec.RefSchema(schemaRef + modelName(reflect.TypeFor[metav1.ObjectMeta]()))},
	}}
	s.SetProperty("metadata", meta)
}

// embed adds these fields to the objects in objects: in fields, in lists and in maps. An embedded object must say its
// kind.
func embed(s *spec.Schema) {
	if s == nil {
		return
	}
	for name, p := range s.Properties {
		embed(&p)
		s.Properties[name] = p
	}
	if s.Items != nil {
		embed(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		embed(s.AdditionalProperties.Schema)
	}
	if yes, _ := s.Extensions[extensionEmbedded].(bool); !yes {
		return
	}
	everyObject(s)
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(s.Required, name) {
			s.Required = append(s.Required, name)
		}
	}
}

// custom adds the schemas of a kind without a Go type and of its list, and returns references to them.
func (b *builder) custom(k *catalog.Kind) (one, list *model) {
	b.models.of(reflect.TypeFor[metav1.ObjectMeta]())
	name := customName(k.GroupVersionKind)
	whole := custom(k)
	m := modelOf(whole)
	m.Kinds = []kindName{nameOf(k.GroupVersionKind)}
	whole.AddExtension(extensionKind, m.Kinds)
	m.custom = whole
	b.models[name] = m

	listKind := k.NewList().GetObjectKind().GroupVersionKind()
	texts := metav1.PartialObjectMetadataList{}.SwaggerDoc()
	typeTexts := metav1.TypeMeta{}.SwaggerDoc()
	l := &model{
		Type: "object", Description: listKind.Kind + " is a list of " + k.Kind, Required: []string{"items"},
		Properties: map[string]*model{
			"apiVersion": {Type: "string", Description: typeTexts["apiVersion"]},
			"kind":       {Type: "string", Description: typeTexts["kind"]},
			"metadata":   {AllOf: []*model{b.models.of(reflect.TypeFor[metav1.ListMeta]())}, Description: texts["metadata"]},
			"items":      {Type: "array", Items: refTo(name), Description: "List of " + k.Resource + ". More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"},
		},
		Kinds:    []kindName{nameOf(listKind)},
		unmarked: true,
	}
	b.models[customName(listKind)] = l
	return refTo(name), refTo(customName(listKind))
}

// olderCustom returns the schema of a kind without a Go type in the words of OpenAPI v2. If it keeps unknown fields, there
// are no fields at all, because older clients would refuse all others.
func olderCustom(s *spec.Schema) *spec.Schema {
	if keeps, _ := s.Extensions.GetBool(extensionKeep); !keeps {
		return olderSchema(s)
	}
	o := &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}}
	if kinds, ok := s.Extensions[extensionKind]; ok {
		o.AddExtension(extensionKind, kinds)
	}
	return o
}

// olderSchema returns a schema in the words of OpenAPI v2, with its rules of values: a reference stands beside other
// fields, schemas are not combined, and what may be null or have unknown fields has no type and no fields, because older
// clients would refuse null and fields that they do not know.
func olderSchema(s *spec.Schema) *spec.Schema {
	if s == nil {
		return nil
	}
	o := *s
	if len(s.AllOf) == 1 && s.AllOf[0].Ref.String() != "" {
		o.Ref = spec.MustCreateRef(strings.Replace(s.AllOf[0].Ref.String(), schemaRef, "#/definitions/", 1))
	}
	o.AllOf, o.AnyOf, o.OneOf, o.Not, o.Nullable = nil, nil, nil, nil, false
	keeps, _ := s.Extensions.GetBool(extensionKeep)
	if s.Nullable || keeps {
		o.Items, o.Properties = nil, nil
	}
	required := s.Required
	if embedded, _ := s.Extensions.GetBool(extensionEmbedded); embedded && keeps {
		required = slices.DeleteFunc(slices.Clone(required), func(name string) bool { return name == "kind" || name == "apiVersion" })
	}
	switch {
	case s.Nullable, keeps && s.Type.Contains("object"), o.Items == nil && s.Type.Contains("array"):
		o.Type = nil
	}
	if len(o.Properties) > 0 {
		o.Properties = make(map[string]spec.Schema, len(s.Properties))
		for name, p := range s.Properties {
			o.Properties[name] = *olderSchema(&p)
		}
	}
	// Older clients take null for a field that is absent.
	o.Required = slices.DeleteFunc(slices.Clone(required), func(name string) bool { return s.Properties[name].Nullable })
	if o.Items != nil {
		o.Items = &spec.SchemaOrArray{Schema: olderSchema(s.Items.Schema)}
	}
	if a := s.AdditionalProperties; a != nil {
		o.AdditionalProperties = &spec.SchemaOrBool{Allows: a.Allows, Schema: olderSchema(a.Schema)}
	}
	return &o
}

// modelOf returns the model of a schema: all that clients need to print, merge and check objects, without the
// rules of values.
func modelOf(s *spec.Schema) *model {
	if s == nil {
		return nil
	}
	m := &model{Ref: s.Ref.String(), Description: s.Description, Format: s.Format, Required: s.Required}
	if len(s.Type) > 0 {
		m.Type = s.Type[0]
	}
	if len(s.AllOf) == 1 && s.AllOf[0].Ref.String() != "" {
		m.AllOf = []*model{{Ref: s.AllOf[0].Ref.String()}}
	}
	if m.Type == "string" {
		for _, e := range s.Enum {
			if text, ok := e.(string); ok {
				m.Enum = append(m.Enum, text)
			}
		}
	}
	for name, p := range s.Properties {
		if m.Properties == nil {
			m.Properties = make(map[string]*model, len(s.Properties))
		}
		m.Properties[name] = modelOf(&p)
	}
	if s.Items != nil {
		m.Items = modelOf(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		m.Additional = modelOf(s.AdditionalProperties.Schema)
	}
	m.ListType, _ = s.Extensions.GetString(extensionListType)
	m.ListKeys, _ = s.Extensions.GetStringSlice(extensionListKeys)
	m.MapType, _ = s.Extensions.GetString(extensionMapType)
	return m
}

// MarshalJSON implements [json.Marshaler].
func (m *model) MarshalJSON() ([]byte, error) {
	if m.custom != nil {
		return json.Marshal(m.custom)
	}
	type plain model
	return json.Marshal((*plain)(m))
}

// UnmarshalJSON implements [json.Unmarshaler], for schemas of OpenAPI v2. Parts that a model cannot express are left out.
func (m *model) UnmarshalJSON(data []byte) error {
	s := &spec.Schema{}
	if err := s.UnmarshalJSON(data); err != nil {
		return err
	}
	*m = *modelOf(s).older()
	return s.Extensions.GetObject("x-kubernetes-group-version-kind", &m.Kinds)
}
