package custom

import (
	"maps"
	"slices"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxDefaults is how many bytes defaults can add to an object, about as many as a request has. Without a limit, defaults
// in the items of lists that are defaults themselves multiply.
const maxDefaults = 3 << 20

// A filler fills in the defaults of a schema.
type filler struct {
	left int // bytes that can be added
}

// fill adds the defaults that x lacks, and reports whether there was room for all. A filler without room changes
// nothing: it reports whether x has them all.
func (f *filler) fill(x any, s *structuralschema.Structural) bool {
	if s == nil {
		return true
	}
	switch x := x.(type) {
	case map[string]any:
		return f.fillMap(x, s)
	case []any:
		for i := range x {
			if lacks(x[i], s.Items) {
				value, ok := f.copyOf(s.Items.Default.Object)
				if !ok {
					return false
				}
				x[i] = value
			}
			if !f.fill(x[i], s.Items) {
				return false
			}
		}
	}
	return true
}

func (f *filler) fillMap(x map[string]any, s *structuralschema.Structural) bool {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		if property.Default.Object == nil {
			continue
		}
		if value, found := x[name]; !found || lacks(value, &property) {
			value, ok := f.copyOf(property.Default.Object)
			if !ok {
				return false
			}
			x[name] = value
		}
	}
	for name, value := range x {
		switch value.(type) {
		case map[string]any, []any, nil:
		default:
			continue
		}
		if property, found := s.Properties[name]; found {
			if !f.fill(value, &property) {
				return false
			}
			continue
		}
		if s.AdditionalProperties == nil {
			continue
		}
		if more := s.AdditionalProperties.Structural; more != nil {
			if lacks(value, more) {
				var ok bool
				if value, ok = f.copyOf(more.Default.Object); !ok {
					return false
				}
				x[name] = value
			}
			if !f.fill(value, more) {
				return false
			}
		}
	}
	return true
}

// lacks reports whether a value is null where it may not be, so that the default replaces it.
func lacks(value any, s *structuralschema.Structural) bool {
	return value == nil && s != nil && !s.Nullable && s.Default.Object != nil
}

// copyOf returns a copy of a default, if there is room for it.
func (f *filler) copyOf(value any) (any, bool) {
	if f.left -= size(value); f.left < 0 {
		return nil, false
	}
	return runtime.DeepCopyJSONValue(value), true
}

// size returns about how many bytes a value takes.
func size(value any) int {
	const one = 16
	n := one
	switch value := value.(type) {
	case string:
		n += len(value)
	case map[string]any:
		for key, v := range value {
			n += len(key) + one + size(v)
		}
	case []any:
		for _, v := range value {
			n += size(v)
		}
	}
	return n
}
