package upstream

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// A generator changes objects at random, along the schemas of their kinds.
type generator struct {
	*rand.Rand
	all map[string]any // the schemas that those of the present kind refer to
}

// change returns a copy of the base of s with one to three changes.
func (g *generator) change(s *seedObject) map[string]any {
	g.all = s.kind.all
	var o map[string]any
	d := json.NewDecoder(strings.NewReader(encode(s.base)))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		panic(err) // it was just encoded
	}
	for range 1 + g.IntN(3) {
		var spots []spot
		g.collect(&spots, o, s.kind.schema, "")
		if len(spots) > 0 {
			g.mutate(spots[g.IntN(len(spots))])
		}
	}
	return o
}

// A spot is a value in an object that can be changed.
type spot struct {
	value  any
	schema map[string]any
	set    func(any)
	remove func()
}

// kept are fields that stay as they are.
var kept = []string{".apiVersion", ".kind", ".metadata", ".metadata.name", ".metadata.namespace", ".metadata.managedFields"}

func (g *generator) collect(spots *[]spot, v any, schema map[string]any, at string) {
	schema = g.resolve(schema)
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			below := g.property(schema, name)
			if !slices.Contains(kept, at+"."+name) {
				*spots = append(*spots, spot{v[name], below, func(n any) { v[name] = n }, func() { delete(v, name) }})
			}
			g.collect(spots, v[name], below, at+"."+name)
		}
	case []any:
		items, _ := schema["items"].(map[string]any)
		for i := range v {
			*spots = append(*spots, spot{v[i], items, func(n any) { v[i] = n }, func() { v[i] = nil }})
			g.collect(spots, v[i], items, at+"[]")
		}
	}
}

// resolve follows references of a schema.
func (g *generator) resolve(schema map[string]any) map[string]any {
	for range 3 {
		if all, ok := schema["allOf"].([]any); ok && len(all) == 1 {
			schema, _ = all[0].(map[string]any)
		}
		if ref, ok := schema["$ref"].(string); ok {
			schema, _ = g.all[ref[strings.LastIndex(ref, "/")+1:]].(map[string]any)
		}
	}
	return schema
}

func (g *generator) property(schema map[string]any, name string) map[string]any {
	if p, ok := field(schema, "properties", name).(map[string]any); ok {
		return p
	}
	p, _ := schema["additionalProperties"].(map[string]any)
	return p
}

func (g *generator) mutate(s spot) {
	switch n := g.IntN(20); {
	case n < 2:
		s.remove()
	case n < 3:
		s.set(nil)
	case n < 4:
		s.set(g.any())
	case n < 6:
		if list, ok := s.value.([]any); ok && len(list) > 0 {
			s.set(append(slices.Clone(list), list[g.IntN(len(list))]))
			return
		}
		fallthrough
	case n < 14:
		if o, ok := s.value.(map[string]any); ok && len(o) > 0 {
			if names := g.names(g.resolve(s.schema)); len(names) > 0 {
				name := names[g.IntN(len(names))]
				if !(name == "managedFields" || name == "name" && o["generateName"] != nil) {
					o[name] = g.value(g.property(g.resolve(s.schema), name), 3)
				}
				return
			}
		}
		fallthrough
	default:
		s.set(g.value(s.schema, 2))
	}
}

// names returns the properties of a schema, or a few keys.
func (g *generator) names(schema map[string]any) []string {
	if p, ok := schema["properties"].(map[string]any); ok {
		return slices.Sorted(maps.Keys(p))
	}
	if schema["additionalProperties"] != nil {
		return []string{"a", "A_b", "cpu", "example.com/a", "x y", "storage", ""}
	}
	return nil
}

// The values that are tried: ends of ranges, and strings that are right somewhere.
var (
	texts = []string{
		"", "a", "A_b", "a.b", "example.com/a", "x y", strings.Repeat("a", 64), strings.Repeat("a", 254), "10.0.0.1", "::1", "10.0.0.0/8", "1", "1Gi", "100m", "-1", "50%",
		"Always", "a=b", "/a", "/a/../b", "../a", "2020-01-01T00:00:00Z", "true", "*", "Equal", "Exists", "In", "None", "UPPER", "TCP", "http", "-a", "a:b", "default", "1e3", "Ünï",
	}
	numbers = []int64{-1, 0, 1, 2, 5, 30, 100, 101, 600, 65535, 65536, 1000000, 2147483647, 2147483648}
)

func (g *generator) any() any {
	return []any{"a", 1, true, 1.5, map[string]any{}, []any{}, []any{"a"}, map[string]any{"a": "b"}, -1}[g.IntN(9)]
}

// value returns a value of a schema that is at most depth levels deep.
func (g *generator) value(schema map[string]any, depth int) any {
	schema = g.resolve(schema)
	if enum, ok := schema["enum"].([]any); ok && g.IntN(4) > 0 {
		return enum[g.IntN(len(enum))]
	}
	switch schema["type"] {
	case "string":
		return texts[g.IntN(len(texts))]
	case "integer":
		return numbers[g.IntN(len(numbers))]
	case "number":
		return float64(numbers[g.IntN(len(numbers))]) / 2
	case "boolean":
		return g.IntN(2) == 0
	case "array":
		items, _ := schema["items"].(map[string]any)
		out := []any{}
		for range g.IntN(3) {
			out = append(out, g.value(items, depth-1))
		}
		return out
	case "object":
		out := map[string]any{}
		names := g.names(schema)
		required, _ := schema["required"].([]any)
		for _, name := range names {
			needed := slices.Contains(required, any(name))
			if name != "managedFields" && (needed && g.IntN(10) > 0 || depth > 0 && g.IntN(len(names)) < 2) {
				out[name] = g.value(g.property(schema, name), depth-1)
			}
		}
		return out
	}
	if g.IntN(2) == 0 { // such as a quantity or an int-or-string
		return texts[g.IntN(len(texts))]
	}
	return numbers[g.IntN(len(numbers))]
}
