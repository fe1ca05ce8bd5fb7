package typedjson

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A form is how values of a type look.
type form uint8

const (
	foreign    form = iota // left to the general packages
	text                   // a string
	boolean                //
	integer                // signed
	cardinal               // unsigned
	blob                   // bytes, in base64
	pointer                //
	list                   // a slice
	dictionary             // a map with keys that are strings
	stringMap              // map[string]string itself
	record                 // a struct
	own                    // a type that reads or writes its own JSON
)

// A plan says how values of one type are read and written.
type plan struct {
	typ  reflect.Type
	kind reflect.Kind // of typ
	size uintptr
	elem *plan // of pointers, lists and dictionaries

	fields []field // of a record, in the order in which they are written
	byName map[string]uint8

	read, write form
	rule        rule // of Normalize
	refers      bool // a value begins with a pointer, and Normalize has nothing to do if that is nil
	trusted     func(p unsafe.Pointer) ([]byte, error)
}

// A field is a field of a record, or of a record that is embedded in it.
type field struct {
	name      string
	head      string // `"name":`
	offset    uintptr
	plan      *plan
	omitEmpty bool
	omitZero  bool
	asksZero  bool // the type itself says whether it is zero
}

// mostFields is how many fields a record may have here.
const mostFields = 128

var (
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	marshaler       = reflect.TypeFor[json.Marshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	zeroer          = reflect.TypeFor[interface{ IsZero() bool }]()
)

// plans are made once for each type.
var (
	plans    sync.Map   // [reflect.Type]*plan: a cache, as encoding/json has one
	planning sync.Mutex // held while plans are made
)

func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	planning.Lock()
	defer planning.Unlock()
	fresh := map[reflect.Type]*plan{}
	p := arrange(t, fresh)
	for t, p := range fresh { // types may contain each other: none is used before all are made
		plans.Store(t, p)
	}
	return p
}

// arrange makes the plan of a type and of all that it is made of.
func arrange(t reflect.Type, fresh map[reflect.Type]*plan) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	if p := fresh[t]; p != nil {
		return p
	}
	p := &plan{typ: t, kind: t.Kind(), size: t.Size()}
	fresh[t] = p
	var f form
	switch t.Kind() {
	case reflect.String:
		f = text
	case reflect.Bool:
		f = boolean
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		f = integer
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		f = cardinal
	case reflect.Pointer:
		f, p.elem = pointer, arrange(t.Elem(), fresh)
	case reflect.Slice:
		f, p.elem = list, arrange(t.Elem(), fresh)
		if e := t.Elem(); e.Kind() == reflect.Uint8 {
			f = foreign
			if e == reflect.TypeFor[byte]() {
				f = blob
			}
		}
	case reflect.Map:
		key := t.Key()
		switch {
		case t == reflect.TypeFor[map[string]string]():
			f = stringMap
		case key.Kind() == reflect.String && !reflect.PointerTo(key).Implements(textUnmarshaler):
			f, p.elem = dictionary, arrange(t.Elem(), fresh)
		}
	case reflect.Struct:
		if p.addFields(t, 0, fresh) && len(p.fields) <= mostFields {
			f = record
		}
	default: // interfaces, arrays, floating point numbers
	}
	p.read, p.write = f, f
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		if t.Name() != "" {
			p.read, p.write = foreign, foreign // a named pointer type
		}
		p.rule = ruleOf(p)
		p.refers = refersOf(p)
		return p // pointers have the methods of their elements
	}
	switch at := reflect.PointerTo(t); {
	case at.Implements(unmarshaler):
		p.read = own
	case at.Implements(textUnmarshaler):
		p.read = foreign
	}
	switch at := reflect.PointerTo(t); {
	case at.Implements(marshaler):
		p.write, p.trusted = own, trusted(t)
		if !t.Implements(marshaler) {
			p.write = foreign // it depends on whether the value has an address
		}
	case at.Implements(textMarshaler):
		p.write = foreign
	}
	p.rule = ruleOf(p)
	p.refers = refersOf(p)
	return p
}

// trusted returns the writer of a type whose JSON needs no check.
func trusted(t reflect.Type) func(p unsafe.Pointer) ([]byte, error) {
	switch t {
	case reflect.TypeFor[metav1.Time]():
		return func(p unsafe.Pointer) ([]byte, error) { return (*metav1.Time)(p).MarshalJSON() }
	case reflect.TypeFor[metav1.MicroTime]():
		return func(p unsafe.Pointer) ([]byte, error) { return (*metav1.MicroTime)(p).MarshalJSON() }
	case reflect.TypeFor[resource.Quantity]():
		return func(p unsafe.Pointer) ([]byte, error) { return (*resource.Quantity)(p).MarshalJSON() }
	case reflect.TypeFor[intstr.IntOrString]():
		return func(p unsafe.Pointer) ([]byte, error) { return (*intstr.IntOrString)(p).MarshalJSON() }
	}
	return nil
}

// addFields adds the fields of t, which lies at that offset of the record. It reports
// whether the record can be planned.
func (p *plan) addFields(t reflect.Type, offset uintptr, fresh map[reflect.Type]*plan) bool {
	if p.byName == nil {
		p.byName = map[string]uint8{}
	}
	for sf := range t.Fields() {
		if sf.Anonymous && (sf.Type.Kind() == reflect.Pointer || !sf.IsExported()) {
			return false
		}
		if !sf.IsExported() {
			continue
		}
		tag := sf.Tag.Get("json")
		if tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if sf.Anonymous && sf.Type.Kind() == reflect.Struct && name == "" {
			if !p.addFields(sf.Type, offset+sf.Offset, fresh) {
				return false
			}
			continue
		}
		if name == "" {
			name = sf.Name
		}
		f := field{name: name, head: `"` + name + `":`, offset: offset + sf.Offset, plan: arrange(sf.Type, fresh)}
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "omitempty":
				f.omitEmpty = true
			case "omitzero":
				f.omitZero = true
				f.asksZero = reflect.PointerTo(sf.Type).Implements(zeroer)
				if f.asksZero && (sf.Type.Kind() == reflect.Pointer || sf.Type.Kind() == reflect.Interface) {
					return false // nil calls no method
				}
			case "string":
				return false
			}
		}
		if _, twice := p.byName[name]; twice || !plain(name) || len(p.fields) >= mostFields {
			return false // the rules for conflicts are those of encoding/json
		}
		p.byName[name] = uint8(len(p.fields))
		p.fields = append(p.fields, f)
	}
	return true
}

// plain reports whether a name stands in JSON as it is.
func plain(name string) bool {
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '$', c == '.':
		default:
			return false
		}
	}
	return name != ""
}
