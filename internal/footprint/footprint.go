package footprint

import (
	"reflect"
	"sync"
	"unsafe"
)

// Of returns how many bytes of memory v takes, with everything that it points to. Values must not have cycles.
func Of(v any) int {
	if v == nil {
		return 0
	}
	t := reflect.TypeOf(v)
	size := int(t.Size())
	walk := walkerOf(t)
	if walk == nil {
		return size
	}
	if t.Kind() == reflect.Pointer { // as objects are
		pointer := reflect.ValueOf(v).UnsafePointer()
		return size + walk(unsafe.Pointer(&pointer))
	}
	held := reflect.New(t)
	held.Elem().Set(reflect.ValueOf(v))
	return size + walk(held.UnsafePointer())
}

// A walker returns the bytes that the value at an address points to. A nil walker is of a type without pointers.
type walker func(unsafe.Pointer) int

// mapEntry is what a map takes for an entry beside its key and value: the control byte, and the slots that stay free, of
// which there are at most as many as there are entries, and mapHead the size without any.
const (
	mapEntry = 16
	mapHead  = 48
)

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
			return func(at unsafe.Pointer) int {
				if w := walkerOf(t); w != nil {
					return w(at)
				}
				return 0
			}
		}
	}
	within = append(within, t)
	switch t.Kind() {
	case reflect.String:
		return func(at unsafe.Pointer) int { return len(*(*string)(at)) }
	case reflect.Slice:
		return ofSlice(t, within)
	case reflect.Pointer:
		size, elem := int(t.Elem().Size()), build(t.Elem(), within)
		return func(at unsafe.Pointer) int {
			switch to := *(*unsafe.Pointer)(at); {
			case to == nil:
				return 0
			case elem == nil:
				return size
			default:
				return size + elem(to)
			}
		}
	case reflect.Map:
		return ofMap(t, within)
	case reflect.Struct, reflect.Array:
		return ofParts(t, within)
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return func(at unsafe.Pointer) int { return ofAny(*(*any)(at)) }
		}
		return func(at unsafe.Pointer) int {
			if v := reflect.NewAt(t, at).Elem(); !v.IsNil() {
				return Of(v.Elem().Interface())
			}
			return 0
		}
	}
	return nil
}

// ofAny is [Of], without a search for the types that free-form JSON has.
func ofAny(v any) int {
	switch v := v.(type) {
	case string:
		return int(unsafe.Sizeof(v)) + len(v)
	case int64, float64:
		return 8
	case bool:
		return 1
	}
	return Of(v)
}

// slice is how a slice stands in memory.
type slice struct {
	data     unsafe.Pointer
	len, cap int
}

func ofSlice(t reflect.Type, within []reflect.Type) walker {
	size, elem := t.Elem().Size(), build(t.Elem(), within)
	return func(at unsafe.Pointer) int {
		s := (*slice)(at)
		total := s.cap * int(size)
		if elem != nil {
			total += ofElements(s.data, s.len, size, elem)
		}
		return total
	}
}

func ofElements(at unsafe.Pointer, n int, size uintptr, elem walker) int {
	total := 0
	for i := range n {
		total += elem(unsafe.Add(at, uintptr(i)*size))
	}
	return total
}

func ofMap(t reflect.Type, within []reflect.Type) walker {
	entry := 2*int(t.Key().Size()+t.Elem().Size()) + mapEntry
	if t.Key().Kind() == reflect.String && t.Elem().Kind() == reflect.String {
		return func(at unsafe.Pointer) int { return ofStrings(*(*map[string]string)(at), entry) }
	}
	key, elem := build(t.Key(), within), build(t.Elem(), within)
	return func(at unsafe.Pointer) int {
		m := reflect.NewAt(t, at).Elem()
		if m.IsNil() {
			return 0
		}
		total := mapHead + m.Len()*entry
		if m.Len() == 0 || key == nil && elem == nil {
			return total
		}
		k, v := reflect.New(t.Key()), reflect.New(t.Elem())
		for each := m.MapRange(); each.Next(); {
			if key != nil {
				k.Elem().SetIterKey(each)
				total += key(k.UnsafePointer())
			}
			if elem != nil {
				v.Elem().SetIterValue(each)
				total += elem(v.UnsafePointer())
			}
		}
		return total
	}
}

func ofStrings(m map[string]string, entry int) int {
	if m == nil {
		return 0
	}
	total := mapHead + len(m)*entry
	for k, v := range m {
		total += len(k) + len(v)
	}
	return total
}

// A part is what points to something in a struct or array: a field, or one of a field's own.
type part struct {
	offset uintptr
	walk   walker
}

func ofParts(t reflect.Type, within []reflect.Type) walker {
	parts := partsOf(t, 0, within)
	if len(parts) == 0 {
		return nil
	}
	return func(at unsafe.Pointer) int {
		total := 0
		for i := range parts {
			// The first word of a string, slice, map, pointer or interface is nil if there is nothing behind it.
			if field := unsafe.Add(at, parts[i].offset); *(*unsafe.Pointer)(field) != nil {
				total += parts[i].walk(field)
			}
		}
		return total
	}
}

// partsOf returns the parts of a value that begins at an offset: itself, unless it is a struct or an array.
func partsOf(t reflect.Type, offset uintptr, within []reflect.Type) []part {
	// A time.Time points to its zone, which all times share.
	switch {
	case t.PkgPath() == "time":
		return nil
	case t.Kind() == reflect.Struct:
		var parts []part
		for i := range t.NumField() {
			f := t.Field(i)
			parts = append(parts, partsOf(f.Type, offset+f.Offset, within)...)
		}
		return parts
	case t.Kind() == reflect.Array:
		var parts []part
		for i := range t.Len() {
			parts = append(parts, partsOf(t.Elem(), offset+uintptr(i)*t.Elem().Size(), within)...)
		}
		return parts
	}
	if w := build(t, within); w != nil {
		return []part{{offset, w}}
	}
	return nil
}
