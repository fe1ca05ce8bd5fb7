package growthtest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A Field is one list or map of a type of objects.
type Field struct {
	// Path is where the field is in JSON, such as spec.containers[0].env.
	Path  string
	steps []step
}

// A step leads from a value to one inside of it: the field of a struct, or the first element of a list.
type step struct {
	field int // of a struct; -1 is the first element of a list, -2 the value of a map
}

const (
	firstElement = -1
	someValue    = -2
)

// Fields returns the lists and maps of a type of objects in the order of its declaration, with those inside the elements of other
// lists. Bytes and the managed fields are left out, and so is what a type has of itself below itself.
func Fields(of reflect.Type) []Field {
	var w walker
	w.visit(of, "", nil, nil)
	return w.found
}

type walker struct{ found []Field }

// opaque are types that have no lists of their own that a user fills.
func opaque(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[resource.Quantity](),
		reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[metav1.FieldsV1](), reflect.TypeFor[metav1.ManagedFieldsEntry]():
		return true
	}
	return false
}

func (w *walker) visit(t reflect.Type, path string, steps []step, above []reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if opaque(t) {
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		if slices.Contains(above, t) {
			return
		}
		above = append(slices.Clone(above), t)
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() {
				continue
			}
			at := path
			if name := nameOf(f); name != "" {
				at = strings.TrimPrefix(path+"."+name, ".")
			}
			w.visit(f.Type, at, append(slices.Clone(steps), step{i}), above)
		}
	case reflect.Slice, reflect.Map:
		elem := t.Elem()
		for elem.Kind() == reflect.Pointer {
			elem = elem.Elem()
		}
		if elem.Kind() == reflect.Uint8 || opaque(elem) && elem != reflect.TypeFor[resource.Quantity]() {
			return
		}
		w.found = append(w.found, Field{path, steps})
		if t.Kind() == reflect.Slice {
			w.visit(elem, path+"[0]", append(slices.Clone(steps), step{firstElement}), above)
		} else {
			w.visit(elem, path+"[x]", append(slices.Clone(steps), step{someValue}), above)
		}
	default:
	}
}

// nameOf returns the name of a field in JSON; "" if its fields are those of the struct around it.
func nameOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" && !f.Anonymous {
		return f.Name
	}
	return name
}

// A Likeness says how the elements of a grown list resemble each other.
type Likeness int

// The likenesses.
const (
	Distinct   Likeness = iota // names, keys, values and numbers all differ
	Equal                      // all are copies of the first one; the keys of a map differ
	Homonymous                 // as Distinct, but for what identifies an element: its name, key, UID, type or IP is that of the first one
)

// Grow gives the field of an object n elements. They are made like the first element of that list if the object has any, and are
// otherwise filled completely. Objects and elements on the way to the field are made if they are not there.
func (f Field) Grow(obj any, n int, how Likeness) {
	grow(reflect.ValueOf(obj), f.steps, n, how)
}

func grow(v reflect.Value, steps []step, n int, how Likeness) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	if len(steps) == 0 {
		if v.Kind() == reflect.Map {
			growMap(v, 0, n, deep)
		} else {
			growList(v, n, how)
		}
		return
	}
	switch s := steps[0]; s.field {
	case firstElement:
		if v.Len() == 0 {
			growList(v, 1, how)
		}
		grow(v.Index(0), steps[1:], n, how)
	case someValue:
		if v.Len() == 0 {
			growMap(v, 0, 1, deep)
		}
		key := v.MapKeys()[0]
		value := reflect.New(v.Type().Elem()).Elem()
		value.Set(v.MapIndex(key))
		grow(value, steps[1:], n, how)
		v.SetMapIndex(key, value)
	default:
		grow(v.Field(s.field), steps[1:], n, how)
	}
}

func growList(v reflect.Value, n int, how Likeness) {
	list := reflect.MakeSlice(v.Type(), n, n)
	var like reflect.Value
	if v.Len() > 0 {
		like = v.Index(0)
	}
	for i := range n {
		number := i
		if how == Equal {
			number = 0
		}
		e := list.Index(i)
		if like.IsValid() {
			e.Set(deepCopy(like))
			if number > 0 {
				vary(e, number)
			}
		} else {
			fill(e, number, deep)
		}
		if how == Homonymous {
			identify(e, list.Index(0))
		}
	}
	v.Set(list)
}

// identify gives an element the names of another one.
func identify(e, as reflect.Value) {
	if e.Kind() != reflect.Struct || opaque(e.Type()) {
		return
	}
	for n := range e.NumField() {
		switch e.Type().Field(n).Name {
		case "Name", "Key", "UID", "Type", "IP":
			if e.Field(n).CanSet() {
				e.Field(n).Set(as.Field(n))
			}
		}
	}
}

// deep is how many levels an element is filled.
const deep = 3

// growMap gives a map n elements, from the one with the number first on, which are filled so many levels deep.
func growMap(v reflect.Value, first, n, depth int) {
	m := reflect.MakeMapWithSize(v.Type(), n)
	for i := first; i < first+n; i++ {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, i, depth)
		fill(value, i, depth)
		if key.Kind() == reflect.String {
			key.SetString(fmt.Sprint("example.com/k", i))
		}
		m.SetMapIndex(key, value)
	}
	v.Set(m)
}

// deepCopy copies a value with all that it points to.
func deepCopy(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(deepCopy(v.Elem()))
		}
	case reflect.Struct:
		if opaque(v.Type()) {
			break
		}
		for i := range v.NumField() {
			if out.Field(i).CanSet() {
				out.Field(i).Set(deepCopy(v.Field(i)))
			}
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(deepCopy(v.Index(i)))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
			for it := v.MapRange(); it.Next(); {
				out.SetMapIndex(it.Key(), deepCopy(it.Value()))
			}
		}
	default:
	}
	return out
}

// vary makes a copy of an element another one: the strings and ports that are set, apart from those of enumerations.
func vary(v reflect.Value, i int) {
	if opaque(v.Type()) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			vary(v.Elem(), i)
		}
	case reflect.Struct:
		for n := range v.NumField() {
			f, is := v.Field(n), v.Type().Field(n)
			switch {
			case !f.CanSet():
			case f.Kind() == reflect.Int32 && strings.HasSuffix(is.Name, "Port") && f.Int() > 0:
				f.SetInt(int64(i%65535) + 1)
			case f.Kind() == reflect.String && f.Len() > 0 && f.Type() == reflect.TypeFor[string]() && isAddress(is.Name):
				f.SetString(address(i))
			case f.Kind() == reflect.String && f.Len() > 0 && strings.HasSuffix(is.Name, "Image"):
			default:
				vary(f, i)
			}
		}
	case reflect.Slice:
		for n := range v.Len() {
			vary(v.Index(n), i)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			e := reflect.New(v.Type().Elem()).Elem()
			e.Set(it.Value())
			vary(e, i)
			v.SetMapIndex(it.Key(), e)
		}
	case reflect.String:
		if v.Len() > 0 && v.Type() == reflect.TypeFor[string]() {
			v.SetString(fmt.Sprintf("%s%d", v.String(), i))
		}
	default:
	}
}

func isAddress(name string) bool { return name == "IP" || strings.HasSuffix(name, "IP") }

func address(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255) }

// fill fills a value that is empty, so that those of different numbers differ. Pointers, lists and maps are followed so many
// levels deep.
func fill(v reflect.Value, i, depth int) {
	switch t := v.Type(); t {
	case reflect.TypeFor[metav1.Time]():
		v.Set(reflect.ValueOf(metav1.Unix(1_700_000_000, 0)))
		return
	case reflect.TypeFor[metav1.MicroTime]():
		v.Set(reflect.ValueOf(metav1.NewMicroTime(time.Unix(1_700_000_000, 0))))
		return
	case reflect.TypeFor[resource.Quantity]():
		v.Set(reflect.ValueOf(*resource.NewQuantity(int64(i%1000)+1, resource.DecimalSI)))
		return
	case reflect.TypeFor[intstr.IntOrString]():
		v.Set(reflect.ValueOf(intstr.FromInt32(int32(i%65535) + 1)))
		return
	default:
		if opaque(t) {
			return
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		fillStruct(v, i, depth)
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), i, depth-1)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(fmt.Append(nil, "x", i))
		} else if depth > 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), i, depth-1)
		}
	case reflect.Map:
		if depth > 0 {
			growMap(v, i, 1, depth-1)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("x", i))
		if values := enums[v.Type()]; len(values) > 0 {
			v.SetString(values[i%len(values)])
		}
	case reflect.Bool:
		v.SetBool(i%2 == 1)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(i%100) + 1)
	case reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(i%100) + 1)
	default:
	}
}

// fillStruct fills a struct. One of nothing but pointers is a choice: elements of different numbers choose different ones.
func fillStruct(v reflect.Value, i, depth int) {
	t, pointers := v.Type(), 0
	for n := range t.NumField() {
		if k := t.Field(n).Type.Kind(); k == reflect.Pointer {
			pointers++
		}
	}
	if pointers > 2 && pointers == t.NumField() {
		fill(v.Field(i%pointers), i, max(depth, 1))
		return
	}
	for n := range t.NumField() {
		f, is := v.Field(n), t.Field(n)
		if !f.CanSet() {
			continue
		}
		switch {
		case f.Kind() == reflect.Int32 && strings.HasSuffix(is.Name, "Port"):
			f.SetInt(int64(i%65535) + 1)
		case f.Kind() == reflect.String && isAddress(is.Name):
			f.SetString(address(i))
		default:
			fill(f, i, depth)
		}
	}
}
