package schema

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/cli/resource"
)

// A Fault is one thing that is wrong with an object.
type Fault struct {
	Path    string // spec.containers[0].image, metadata.labels[a.b/c]
	Message string // a sentence that names the field
}

// A model is the schema of a type, as far as it is looked at.
type model struct {
	Ref        string            `json:"$ref,omitempty"`
	Type       string            `json:"type,omitempty"`
	Properties map[string]*model `json:"properties,omitempty"`
	Additional *additional       `json:"additionalProperties,omitempty"`
	Items      *model            `json:"items,omitempty"`
	Enum       []any             `json:"enum,omitempty"`
	AllOf      []*model          `json:"allOf,omitempty"`
	AnyOf      []*model          `json:"anyOf,omitempty"`
	OneOf      []*model          `json:"oneOf,omitempty"`

	Kinds       []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind,omitempty"`
	Open        bool                      `json:"x-kubernetes-preserve-unknown-fields,omitempty"`
	IntOrString bool                      `json:"x-kubernetes-int-or-string,omitempty"`
	Embedded    bool                      `json:"x-kubernetes-embedded-resource,omitempty"`
}

// additional says what fields without a name of their own hold.
type additional struct {
	allowed bool
	model   *model // nil allows anything
}

// UnmarshalJSON reads a boolean or a schema.
func (a *additional) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, &a.allowed) == nil {
		return nil
	}
	a.allowed = true
	return json.Unmarshal(text, &a.model)
}

// Check returns everything that is wrong with an object of a kind, in the order of
// the paths. There is nothing if the server has no schema for the kind.
func (s *Schemas) Check(ctx context.Context, kind schema.GroupVersionKind, object map[string]any) []Fault {
	doc, m := s.of(ctx, kind)
	if m == nil {
		return nil
	}
	c := checker{doc: doc}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if name == "apiVersion" || name == "kind" {
			continue // what it was found by
		}
		c.field(m, "", name, object[name])
	}
	return c.faults
}

// A checker collects faults.
type checker struct {
	doc    *document
	faults []Fault
}

func (c *checker) fault(path, format string, args ...any) {
	c.faults = append(c.faults, Fault{path, fmt.Sprintf(format, args...)})
}

// resolve follows references. Schemas put one alone into allOf where something is to
// be said beside it. Nil means that nothing is known.
func (c *checker) resolve(m *model) *model {
	for m != nil {
		switch {
		case m.Ref != "":
			m = c.doc.named(strings.TrimPrefix(m.Ref, "#/components/schemas/"))
		case len(m.AllOf) == 1 && m.Type == "" && m.Properties == nil:
			m = m.AllOf[0]
		default:
			return m
		}
	}
	return nil
}

// field checks the value of a field of an object with the schema m.
func (c *checker) field(m *model, at, name string, value any) {
	path := join(at, name)
	switch p, known := m.Properties[name]; {
	case known:
		c.value(p, path, value)
	case m.Additional != nil && m.Additional.allowed:
		if m.Additional.model != nil {
			c.value(m.Additional.model, path, value)
		}
	case len(m.Properties) == 0, m.Open, len(m.AllOf)+len(m.AnyOf)+len(m.OneOf) > 0 && m.Additional == nil:
		// Anything goes, or what goes is said elsewhere.
	case m.Embedded && (name == "apiVersion" || name == "kind" || name == "metadata"):
	default:
		near := ""
		for _, p := range slices.Sorted(maps.Keys(m.Properties)) {
			if resource.Alike(p, name) {
				near = fmt.Sprintf(" (did you mean %q?)", p)
				break
			}
		}
		c.fault(path, "unknown field %q%s", path, near)
	}
}

// value checks a value. Null stands for a field that is not there.
func (c *checker) value(m *model, path string, value any) {
	if m = c.resolve(m); m == nil || value == nil {
		return
	}
	if m.IntOrString {
		c.kind(path, value, "integer", "string")
		return
	}
	if one := append(slices.Clone(m.OneOf), m.AnyOf...); len(one) > 0 && m.Type == "" && m.Properties == nil {
		c.oneOf(one, path, value)
		return
	}
	if m.Type != "" && !c.kind(path, value, m.Type) {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			c.field(m, path, name, v[name])
		}
	case []any:
		for i, e := range v {
			c.value(m.Items, path+"["+strconv.Itoa(i)+"]", e)
		}
	case string:
		if len(m.Enum) > 0 && v != "" && !slices.Contains(m.Enum, any(v)) {
			var words []string
			for _, e := range m.Enum {
				if e != "" {
					words = append(words, fmt.Sprint(e))
				}
			}
			c.fault(path, "field %q must be one of %[3]s, got %[2]q", path, v, strings.Join(words, ", "))
		}
	}
}

// oneOf checks content against several alternative schemas. If the alternatives are only
// types, one error names all of them.
func (c *checker) oneOf(alternatives []*model, path string, value any) {
	var types []string
	for _, a := range alternatives {
		a = c.resolve(a)
		if a == nil || a.Type == "" {
			return // it says something that is not understood here
		}
		try := checker{doc: c.doc}
		if try.value(a, path, value); len(try.faults) == 0 {
			return
		}
		types = append(types, a.Type)
	}
	c.kind(path, value, types...)
}

// kind reports whether a value is of one of the types, and is a fault if not.
func (c *checker) kind(path string, value any, types ...string) bool {
	is, what := "", ""
	switch v := value.(type) {
	case map[string]any:
		is, what = "object", "a map"
	case []any:
		is, what = "array", "a list"
	case string:
		if r := []rune(v); len(r) > 40 {
			v = string(r[:40]) + "…"
		}
		is, what = "string", fmt.Sprintf("the text %q", v)
	case bool:
		is, what = "boolean", fmt.Sprintf("the boolean %v", v)
	case int64:
		is, what = "integer", fmt.Sprintf("the number %v", v)
	case float64:
		is, what = "number", fmt.Sprintf("the number %v", v)
	default:
		return true
	}
	wants := make([]string, len(types))
	for i, t := range types {
		if t == is || t == "number" && is == "integer" {
			return true
		}
		wants[i] = map[string]string{
			"object": "a map of fields", "array": "a list", "string": "a string", "boolean": "true or false",
			"integer": "a whole number", "number": "a number",
		}[t]
		if wants[i] == "" {
			return true // a type that is not understood here
		}
	}
	hint := ""
	if len(types) == 1 && types[0] == "string" && (is == "integer" || is == "number" || is == "boolean") {
		hint = ": put it in quotes"
	}
	c.fault(path, "field %q must be %[3]s, got %[2]s%[4]s", path, what, strings.Join(wants, " or "), hint)
	return false
}

// join puts a field name behind a path, in brackets if it has dots or slashes.
func join(path, name string) string {
	switch {
	case strings.ContainsAny(name, "./[]"):
		return path + "[" + name + "]"
	case path == "":
		return name
	}
	return path + "." + name
}
