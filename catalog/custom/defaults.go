package custom

import (
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxDefaults is how many bytes defaults can add to an object, about as many as a request has. Without a limit, defaults
// in the items of lists that are defaults themselves multiply.
const maxDefaults = 3 << 20

// defaults is the part of a schema that has defaults. Nil means none.
type defaults struct {
	value      any // nil if there is none
	nullable   bool
	properties map[string]*defaults
	more       *defaults // of further properties
	items      *defaults
}

func newDefaults(s *structuralschema.Structural) *defaults {
	if s == nil {
		return nil
	}
	d := &defaults{value: s.Default.Object, nullable: s.Nullable, more: newDefaults(moreOf(s)), items: newDefaults(s.Items)}
	for name, property := range s.Properties {
		if below := newDefaults(&property); below != nil {
			if d.properties == nil {
				d.properties = map[string]*defaults{}
			}
			d.properties[name] = below
		}
	}
	if d.value == nil && d.more == nil && d.items == nil && d.properties == nil {
		return nil
	}
	return d
}

// replaces reports whether the default replaces a value: null where it may not be.
func (d *defaults) replaces(value any) bool { return value == nil && d.value != nil && !d.nullable }

// A filler fills in defaults.
type filler struct {
	left int // bytes that can be added
}

// fill adds the defaults that x lacks, and reports whether there was room for all. A filler without room changes
// nothing: it reports whether x has them all.
func (f *filler) fill(x any, d *defaults) bool {
	if d == nil {
		return true
	}
	switch x := x.(type) {
	case map[string]any:
		return f.fillMap(x, d)
	case []any:
		if d.items == nil {
			return true
		}
		for i := range x {
			if d.items.replaces(x[i]) && !f.room(d.items, &x[i]) || !f.fill(x[i], d.items) {
				return false
			}
		}
	}
	return true
}

func (f *filler) fillMap(x map[string]any, d *defaults) bool {
	for name, property := range d.properties {
		value, found := x[name]
		if !found && property.value == nil {
			continue
		}
		if !found || property.replaces(value) {
			if !f.room(property, &value) {
				return false
			}
			x[name] = value
		}
		if !f.fill(value, property) {
			return false
		}
	}
	if d.more == nil {
		return true
	}
	for name, value := range x {
		if d.properties[name] != nil {
			continue
		}
		if d.more.replaces(value) {
			if !f.room(d.more, &value) {
				return false
			}
			x[name] = value
		}
		if !f.fill(value, d.more) {
			return false
		}
	}
	return true
}

// room sets into to a copy of the default, if there is room for it.
func (f *filler) room(d *defaults, into *any) bool {
	if f.left -= size(d.value); f.left < 0 {
		return false
	}
	*into = runtime.DeepCopyJSONValue(d.value)
	return true
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
