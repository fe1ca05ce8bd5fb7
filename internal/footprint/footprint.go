package footprint

import (
	"reflect"
	"sync"
)

// Of returns how many bytes of memory v takes, with everything that it points to. Values must not have cycles.
func Of(v any) int {
	if v == nil {
		return 0
	}
	r := reflect.ValueOf(v)
	size := int(r.Type().Size())
	if walk := walkerOf(r.Type()); walk != nil {
		size += walk(r)
	}
	return size
}

// A walker returns the bytes that a value points to. A nil walker is of a type without pointers.
type walker func(reflect.Value) int

// mapEntry is what a map takes for an entry beside its key and value: the control byte, and the slots that stay free, of
// which there are at most as many as there are entries.
const mapEntry = 16

// walkers caches the walker of each type: types are finite, and the walker of one is the same for all callers.
var walkers sync.Map // a cache; reflect.Type -> walker

func walkerOf(t reflect.Type) walker {
	if w, ok := walkers.Load(t); ok {
		return w.(walker)
	}
	w := build(t, nil)
	walkers.Store(t, w)
	return w
}

// build makes the walker of a type. Within is what the type is part of: a type that contains itself is walked by the
// cached walker of its own, which is there by then.
func build(t reflect.Type, within []reflect.Type) walker {
	for _, outer := range within {
		if outer == t {
			return func(v reflect.Value) int {
				if w := walkerOf(v.Type()); w != nil {
					return w(v)
				}
				return 0
			}
		}
	}
	within = append(within, t)
	switch t.Kind() {
	case reflect.String:
		return func(v reflect.Value) int { return v.Len() }
	case reflect.Slice:
		return ofSlice(t, within)
	case reflect.Array:
		elem := build(t.Elem(), within)
		if elem == nil {
			return nil
		}
		return func(v reflect.Value) int { return ofElements(v, elem) }
	case reflect.Pointer:
		size, elem := int(t.Elem().Size()), build(t.Elem(), within)
		return func(v reflect.Value) int {
			switch {
			case v.IsNil():
				return 0
			case elem == nil:
				return size
			}
			return size + elem(v.Elem())
		}
	case reflect.Map:
		return ofMap(t, within)
	case reflect.Struct:
		return ofStruct(t, within)
	case reflect.Interface:
		return func(v reflect.Value) int {
			if v.IsNil() {
				return 0
			}
			held := v.Elem()
			size := int(held.Type().Size())
			if w := walkerOf(held.Type()); w != nil {
				size += w(held)
			}
			return size
		}
	}
	return nil
}

func ofSlice(t reflect.Type, within []reflect.Type) walker {
	size, elem := int(t.Elem().Size()), build(t.Elem(), within)
	return func(v reflect.Value) int {
		total := v.Cap() * size
		if elem != nil {
			total += ofElements(v, elem)
		}
		return total
	}
}

func ofElements(v reflect.Value, elem walker) int {
	total := 0
	for i := range v.Len() {
		total += elem(v.Index(i))
	}
	return total
}

func ofMap(t reflect.Type, within []reflect.Type) walker {
	key, elem := build(t.Key(), within), build(t.Elem(), within)
	entry := 2*int(t.Key().Size()+t.Elem().Size()) + mapEntry
	return func(v reflect.Value) int {
		if v.IsNil() {
			return 0
		}
		const head = 48
		total := head + v.Len()*entry
		if key == nil && elem == nil {
			return total
		}
		for each := v.MapRange(); each.Next(); {
			if key != nil {
				total += key(each.Key())
			}
			if elem != nil {
				total += elem(each.Value())
			}
		}
		return total
	}
}

func ofStruct(t reflect.Type, within []reflect.Type) walker {
	type part struct {
		index int
		walk  walker
	}
	var parts []part
	for i := range t.NumField() {
		// A time.Time points to its zone, which all times share.
		if f := t.Field(i); f.Type.PkgPath() != "time" {
			if w := build(f.Type, within); w != nil {
				parts = append(parts, part{i, w})
			}
		}
	}
	if len(parts) == 0 || t.PkgPath() == "time" {
		return nil
	}
	return func(v reflect.Value) int {
		total := 0
		for _, p := range parts {
			total += p.walk(v.Field(p.index))
		}
		return total
	}
}
