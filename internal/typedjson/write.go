package typedjson

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"
	"unsafe"
)

// errForeign says that a value is left to encoding/json.
var errForeign = errors.New("typedjson: not planned for")

// keptBuffer is the size up to which a buffer is used again.
const keptBuffer = 64 << 10

var buffers = sync.Pool{New: func() any { return new([]byte) }} // a pool is state of the process by its nature

// Marshal returns the JSON of v (J2).
func Marshal(v any) ([]byte, error) {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return json.Marshal(v)
	}
	buf := buffers.Get().(*[]byte)
	out, err := value((*buf)[:0], planOf(p.Type().Elem()), p.UnsafePointer())
	if cap(out) <= keptBuffer {
		*buf = out
	}
	if err == nil {
		out = slices.Clone(out)
	}
	buffers.Put(buf)
	if err != nil {
		return json.Marshal(v) // which knows what is wrong
	}
	return out, nil
}

// value appends a value.
func value(dst []byte, p *plan, from unsafe.Pointer) ([]byte, error) {
	switch p.write {
	case text:
		return appendText(dst, *(*string)(from)), nil
	case boolean:
		return strconv.AppendBool(dst, *(*bool)(from)), nil
	case integer:
		return strconv.AppendInt(dst, signed(p.size, from), 10), nil
	case cardinal:
		return strconv.AppendUint(dst, reflect.NewAt(p.typ, from).Elem().Uint(), 10), nil
	case blob:
		b := *(*[]byte)(from)
		if b == nil {
			return append(dst, "null"...), nil
		}
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, b)
		return append(dst, '"'), nil
	case pointer:
		to := *(*unsafe.Pointer)(from)
		if to == nil {
			return append(dst, "null"...), nil
		}
		return value(dst, p.elem, to)
	case list:
		return appendList(dst, p, (*slice)(from))
	case stringMap:
		return appendStringMap(dst, *(*map[string]string)(from)), nil
	case dictionary:
		return appendDictionary(dst, p, reflect.NewAt(p.typ, from).Elem())
	case record:
		return appendRecord(dst, p, from)
	case own:
		return appendOwn(dst, p, from)
	case foreign:
	}
	return dst, errForeign
}

func signed(size uintptr, from unsafe.Pointer) int64 {
	switch size {
	case 1:
		return int64(*(*int8)(from))
	case 2:
		return int64(*(*int16)(from))
	case 4:
		return int64(*(*int32)(from))
	}
	return *(*int64)(from)
}

func appendOwn(dst []byte, p *plan, from unsafe.Pointer) ([]byte, error) {
	if p.trusted != nil {
		b, err := p.trusted(from)
		return append(dst, b...), err
	}
	b, err := reflect.NewAt(p.typ, from).Interface().(json.Marshaler).MarshalJSON()
	if err == nil {
		b, err = json.Marshal(json.RawMessage(b)) // checked, compacted and escaped
	}
	return append(dst, b...), err
}

func appendList(dst []byte, p *plan, s *slice) ([]byte, error) {
	if s.data == nil {
		return append(dst, "null"...), nil
	}
	dst = append(dst, '[')
	var err error
	for i := range s.len {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = value(dst, p.elem, unsafe.Add(s.data, uintptr(i)*p.elem.size)); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

func appendStringMap(dst []byte, m map[string]string) []byte {
	if m == nil {
		return append(dst, "null"...)
	}
	var few [16]string
	keys := few[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	dst = append(dst, '{')
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, k), ':')
		dst = appendText(dst, m[k])
	}
	return append(dst, '}')
}

func appendDictionary(dst []byte, p *plan, m reflect.Value) ([]byte, error) {
	if m.IsNil() {
		return append(dst, "null"...), nil
	}
	// The elements are copied to where they have an address.
	n := m.Len()
	elems := reflect.MakeSlice(reflect.SliceOf(p.elem.typ), n, n)
	type entry struct {
		key string
		at  int
	}
	var few [8]entry
	entries := few[:0]
	for it := m.MapRange(); it.Next(); {
		elems.Index(len(entries)).SetIterValue(it)
		entries = append(entries, entry{it.Key().String(), len(entries)})
	}
	slices.SortFunc(entries, func(a, b entry) int {
		if a.key < b.key {
			return -1
		}
		return 1
	})
	dst = append(dst, '{')
	var err error
	for i, e := range entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, e.key), ':')
		if dst, err = value(dst, p.elem, unsafe.Add(elems.UnsafePointer(), uintptr(e.at)*p.elem.size)); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

func appendRecord(dst []byte, p *plan, from unsafe.Pointer) ([]byte, error) {
	next := byte('{')
	var err error
	for i := range p.fields {
		f := &p.fields[i]
		at := unsafe.Add(from, f.offset)
		if f.omitEmpty && f.plan.empty(at) || f.omitZero && f.zero(at) {
			continue
		}
		dst = append(append(dst, next), f.head...)
		next = ','
		if dst, err = value(dst, f.plan, at); err != nil {
			return dst, err
		}
	}
	if next == '{' {
		dst = append(dst, '{')
	}
	return append(dst, '}'), nil
}

// empty reports whether omitempty leaves a value out.
func (p *plan) empty(from unsafe.Pointer) bool {
	switch p.kind {
	case reflect.String:
		return *(*string)(from) == ""
	case reflect.Slice:
		return (*slice)(from).len == 0
	case reflect.Pointer:
		return *(*unsafe.Pointer)(from) == nil
	case reflect.Bool:
		return !*(*bool)(from)
	case reflect.Int32:
		return *(*int32)(from) == 0
	case reflect.Int64:
		return *(*int64)(from) == 0
	case reflect.Map: // which is a pointer
		return *(*unsafe.Pointer)(from) == nil || reflect.NewAt(p.typ, from).Elem().Len() == 0
	case reflect.Array:
		return reflect.NewAt(p.typ, from).Elem().Len() == 0
	case reflect.Struct:
		return false
	default:
		return reflect.NewAt(p.typ, from).Elem().IsZero()
	}
}

// zero reports whether omitzero leaves a value out.
func (f *field) zero(from unsafe.Pointer) bool {
	v := reflect.NewAt(f.plan.typ, from)
	if f.asksZero {
		return v.Interface().(interface{ IsZero() bool }).IsZero()
	}
	return v.Elem().IsZero()
}

const digits = "0123456789abcdef"

// appendText appends a string as encoding/json does, with what has a meaning in
// HTML escaped.
func appendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from, i := 0, 0
	for i < len(s) {
		if i+8 <= len(s) {
			// Eight bytes at once, if all of them stand as they are.
			x := binary.LittleEndian.Uint64(unsafe.Slice(unsafe.StringData(s), len(s))[i:])
			q, b, amp, lt, gt := x^ones*'"', x^ones*'\\', x^ones*'&', x^ones*'<', x^ones*'>'
			if (x|(x-ones*0x20)|(q-ones)&^q|(b-ones)&^b|(amp-ones)&^amp|(lt-ones)&^lt|(gt-ones)&^gt)&highs == 0 {
				i += 8
				continue
			}
		}
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && n == 1:
				dst = append(append(dst, s[from:i]...), `\ufffd`...)
				from = i + n
			case r == '\u2028', r == '\u2029':
				dst = append(append(dst, s[from:i]...), `\u202`...)
				dst = append(dst, digits[r&0xf])
				from = i + n
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&' {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&0xf])
		}
		i++
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}
