package openapi

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// A message is written field by field, by the numbers of the protobuf form of
// OpenAPI v3 (gnostic's openapi.v3).
type message []byte

// text adds a string field, if there is something in it.
func (m *message) text(field protowire.Number, s string) {
	if s != "" {
		*m = protowire.AppendString(protowire.AppendTag(*m, field, protowire.BytesType), s)
	}
}

// texts adds a repeated text field.
func (m *message) texts(field protowire.Number, values []string) {
	for _, v := range values {
		m.text(field, v)
	}
}

// truth adds a boolean field that is true.
func (m *message) truth(field protowire.Number, is bool) {
	if is {
		*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), 1)
	}
}

// sub adds a field that is a message.
func (m *message) sub(field protowire.Number, write func(*message)) {
	var inner message
	write(&inner)
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), inner)
}

// named adds pairs of a name and a message, which is how maps are written.
func named[T any](m *message, field protowire.Number, values map[string]T, write func(*message, T)) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		m.sub(field, func(m *message) {
			m.text(1, name)
			m.sub(2, func(m *message) { write(m, values[name]) })
		})
	}
}

// extension adds an x-… field, whose value is YAML, of which JSON is a part.
func (m *message) extension(field protowire.Number, name string, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		return // strings and names of kinds have a JSON form
	}
	m.sub(field, func(m *message) {
		m.text(1, name)
		m.sub(2, func(m *message) { m.text(2, string(data)) })
	})
}

// reference adds a $ref.
func (m *message) reference(ref string) {
	m.sub(2, func(m *message) { m.text(1, ref) })
}

// protobuf returns the document in protobuf.
func (d *document) protobuf() []byte {
	var m message
	m.text(1, d.OpenAPI)
	m.sub(2, func(m *message) {
		m.text(1, d.Info.Title)
		m.text(6, d.Info.Version)
	})
	m.sub(4, func(m *message) { named(m, 1, d.Paths, (*message).pathItem) })
	m.sub(5, func(m *message) {
		m.sub(1, func(m *message) { named(m, 1, d.Components.Schemas, (*message).model) })
		m.sub(3, func(m *message) { named(m, 1, d.Components.Parameters, (*message).parameter) })
	})
	return m
}

func (m *message) pathItem(p pathItem) {
	for _, part := range []struct {
		field  protowire.Number
		method string
	}{{4, "get"}, {5, "put"}, {6, "post"}, {7, "delete"}, {8, "options"}, {9, "head"}, {10, "patch"}} {
		if op, ok := p[part.method].(*operation); ok {
			m.sub(part.field, func(m *message) { m.operation(op) })
		}
	}
	if ps, ok := p["parameters"].([]*parameter); ok {
		for _, p := range ps {
			m.sub(13, func(m *message) { m.parameter(p) })
		}
	}
}

func (m *message) operation(op *operation) {
	m.texts(1, op.Tags)
	m.text(3, op.Description)
	m.text(5, op.OperationID)
	for _, p := range op.Parameters {
		m.sub(6, func(m *message) { m.parameter(p) })
	}
	if b := op.RequestBody; b != nil {
		m.sub(7, func(m *message) {
			m.sub(1, func(m *message) {
				m.content(2, b.Content)
				m.truth(3, b.Required)
			})
		})
	}
	m.sub(8, func(m *message) {
		named(m, 2, op.Responses, func(m *message, r response) {
			m.sub(1, func(m *message) {
				m.text(1, r.Description)
				m.content(3, r.Content)
			})
		})
	})
	if op.Action != "" {
		m.extension(13, "x-kubernetes-action", op.Action)
	}
	if op.Kind != nil {
		m.extension(13, "x-kubernetes-group-version-kind", op.Kind)
	}
}

func (m *message) content(field protowire.Number, c map[string]media) {
	if len(c) > 0 {
		m.sub(field, func(m *message) {
			named(m, 1, c, func(m *message, c media) {
				m.sub(1, func(m *message) { m.model(c.Schema) })
			})
		})
	}
}

func (m *message) parameter(p *parameter) {
	if p.Ref != "" {
		m.reference(p.Ref)
		return
	}
	m.sub(1, func(m *message) {
		m.text(1, p.Name)
		m.text(2, p.In)
		m.text(3, p.Description)
		m.truth(4, p.Required)
		m.sub(10, func(m *message) { m.model(p.Schema) })
	})
}

func (m *message) model(s *model) {
	if s.Ref != "" {
		m.reference(s.Ref)
		return
	}
	m.sub(1, func(m *message) {
		m.texts(23, s.Required)
		m.enum(24, s.Enum)
		m.text(25, s.Type)
		for _, one := range s.AllOf {
			m.sub(26, func(m *message) { m.model(one) })
		}
		for _, one := range s.OneOf {
			m.sub(27, func(m *message) { m.model(one) })
		}
		if s.Items != nil {
			m.sub(30, func(m *message) { m.sub(1, func(m *message) { m.model(s.Items) }) })
		}
		if len(s.Properties) > 0 {
			m.sub(31, func(m *message) { named(m, 1, s.Properties, (*message).model) })
		}
		if s.Additional != nil {
			m.sub(32, func(m *message) { m.sub(1, func(m *message) { m.model(s.Additional) }) })
		}
		if s.Default != nil && s.Default[0] != '{' { // there is no form for objects
			m.sub(33, func(m *message) { m.defaultValue(s.Default) })
		}
		m.text(34, s.Description)
		m.text(35, s.Format)
		if len(s.Kinds) > 0 {
			m.extension(36, "x-kubernetes-group-version-kind", s.Kinds)
		}
		m.merging(36, s)
	})
}

// defaultValue adds a default: a number, a truth or a text.
func (m *message) defaultValue(value json.RawMessage) {
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return // a test reads the same values
	}
	switch v := v.(type) {
	case float64:
		*m = protowire.AppendFixed64(protowire.AppendTag(*m, 1, protowire.Fixed64Type), math.Float64bits(v))
	case bool: // false, too
		*m = protowire.AppendVarint(protowire.AppendTag(*m, 2, protowire.VarintType), protowire.EncodeBool(v))
	case string: // an empty one, too
		*m = protowire.AppendString(protowire.AppendTag(*m, 3, protowire.BytesType), v)
	}
}

// enum adds the values of an enumeration, as YAML.
func (m *message) enum(field protowire.Number, values []string) {
	for _, v := range values {
		m.sub(field, func(m *message) { m.text(2, strconv.Quote(v)) })
	}
}

// merging adds what says how lists and maps are merged.
func (m *message) merging(field protowire.Number, s *model) {
	for _, e := range []struct{ name, value string }{
		{"x-kubernetes-patch-merge-key", s.PatchMergeKey},
		{"x-kubernetes-patch-strategy", s.PatchStrategy},
		{"x-kubernetes-list-type", s.ListType},
		{"x-kubernetes-map-type", s.MapType},
	} {
		if e.value != "" {
			m.extension(field, e.name, e.value)
		}
	}
	if len(s.ListKeys) > 0 {
		m.extension(field, "x-kubernetes-list-map-keys", s.ListKeys)
	}
}
