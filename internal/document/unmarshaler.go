package document

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// refusedAt returns the path of the first value in a JSON text for the type t that a type with a decoder of its own, such as
// resource.Quantity, refuses. The error of such a decoder does not have the place.
func refusedAt(t reflect.Type, text []byte, path string) (at string, found bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return path, json.Unmarshal(text, reflect.New(t).Interface()) != nil
	}
	switch t.Kind() {
	case reflect.Struct:
		members := map[string]json.RawMessage{}
		_ = json.Unmarshal(text, &members) // a value that is not an object has no members
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if value, ok := members[name]; ok && f.IsExported() {
				if at, found = refusedAt(f.Type, value, below(path, name)); found {
					return at, true
				}
			}
		}
	case reflect.Map:
		members := map[string]json.RawMessage{}
		_ = json.Unmarshal(text, &members)
		var names []string
		for name := range members {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			if at, found = refusedAt(t.Elem(), members[name], below(path, name)); found {
				return at, true
			}
		}
	case reflect.Slice, reflect.Array:
		var items []json.RawMessage
		_ = json.Unmarshal(text, &items)
		for i, item := range items {
			if at, found = refusedAt(t.Elem(), item, path+"["+strconv.Itoa(i)+"]"); found {
				return at, true
			}
		}
	default: // a scalar, whose error has its place
	}
	return "", false
}
