package openapi

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// models collects the schemas of Go types, each once, by name.
type models map[string]*model

// of returns a reference to the schema of a type, or the schema itself if the type
// is no named struct.
func (ms models) of(t reflect.Type) *model {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if special, ok := specialModel(t); ok {
		name := modelName(t)
		if ms[name] == nil {
			special.Description = docs(t)[""]
			ms[name] = special
		}
		return refTo(name)
	}
	switch t.Kind() {
	case reflect.Struct:
		name := modelName(t)
		if ms[name] == nil {
			m := &model{Type: "object", Description: docs(t)[""]}
			ms[name] = m // before its fields: types may contain themselves
			ms.fields(m, t)
		}
		return refTo(name)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return &model{Type: "string", Format: "byte"}
		}
		return &model{Type: "array", Items: ms.of(t.Elem())}
	case reflect.Map:
		return &model{Type: "object", Additional: ms.of(t.Elem())}
	case reflect.String:
		if t.PkgPath() == "" {
			return &model{Type: "string"}
		}
		return &model{Type: "string", Enum: enums()[modelName(t)]}
	case reflect.Bool:
		return &model{Type: "boolean"}
	case reflect.Int64, reflect.Uint64:
		return &model{Type: "integer", Format: "int64"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return &model{Type: "integer", Format: "int32"}
	case reflect.Float32:
		return &model{Type: "number", Format: "float"}
	case reflect.Float64:
		return &model{Type: "number", Format: "double"}
	default: // an interface: anything
		return &model{}
	}
}

// fields adds the fields of the struct type t to m, those of embedded structs as if
// they were t's own, as encoding/json does.
func (ms models) fields(m *model, t reflect.Type) {
	texts := docs(t)
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if f.Anonymous && name == "" {
			ft := f.Type
			if ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			ms.fields(m, ft)
			continue
		}
		if name == "" {
			name = f.Name
		}
		p := ms.of(f.Type)
		if p.Ref != "" {
			// Beside a $ref everything else is ignored, so it is put one level deeper.
			p = &model{AllOf: []*model{p}}
		}
		p.Description = texts[name]
		p.PatchMergeKey = f.Tag.Get("patchMergeKey")
		p.PatchStrategy = f.Tag.Get("patchStrategy")
		if m.Properties == nil {
			m.Properties = map[string]*model{}
		}
		m.Properties[name] = p
		optional := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		p.Default = zeroDefault(f.Type, optional)
		if required, tagged := requirements()[modelName(t)+"/"+name]; required || !tagged && !optional {
			m.Required = append(m.Required, name)
		}
	}
}

// zeroDefault returns the default of a field that says none itself. A struct has its fields'
// defaults, and a scalar that is always encoded is zero.
func zeroDefault(t reflect.Type, optional bool) json.RawMessage {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil // zero is null
	}
	zero := ""
	switch t.Kind() {
	case reflect.Struct:
		return json.RawMessage("{}")
	case reflect.String:
		zero = `""`
	case reflect.Bool:
		zero = "false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64:
		zero = "0"
	}
	if optional || zero == "" {
		return nil
	}
	return json.RawMessage(zero)
}

// specialModel returns the schema of a type that encodes itself and says how.
func specialModel(t reflect.Type) (*model, bool) {
	v := reflect.New(t).Interface()
	typed, ok := v.(interface{ OpenAPISchemaType() []string })
	if !ok {
		return nil, false
	}
	m := &model{}
	if types := typed.OpenAPISchemaType(); len(types) > 0 {
		m.Type = types[0] // otherwise it is anything, such as a default in the schema of a custom resource
	}
	if f, ok := v.(interface{ OpenAPISchemaFormat() string }); ok {
		m.Format = f.OpenAPISchemaFormat()
	}
	if o, ok := v.(interface{ OpenAPIV3OneOfTypes() []string }); ok {
		m.Type = ""
		for _, one := range o.OpenAPIV3OneOfTypes() {
			m.OneOf = append(m.OneOf, &model{Type: one})
		}
	}
	return m, true
}

// modelName returns the name of a type's schema: the type's own, or its
// package path with the domain turned round and its name.
func modelName(t reflect.Type) string {
	if n, ok := reflect.TypeAssert[interface{ OpenAPIModelName() string }](reflect.New(t)); ok {
		return n.OpenAPIModelName()
	}
	domain, path, _ := strings.Cut(t.PkgPath(), "/")
	parts := strings.Split(domain, ".")
	slices.Reverse(parts)
	if path != "" {
		parts = append(parts, strings.Split(path, "/")...)
	}
	return strings.Join(append(parts, t.Name()), ".")
}

// docs returns the texts of a type, by field, and its own under "".
func docs(t reflect.Type) map[string]string {
	if d, ok := reflect.TypeAssert[interface{ SwaggerDoc() map[string]string }](reflect.New(t)); ok {
		return d.SwaggerDoc()
	}
	return nil
}
