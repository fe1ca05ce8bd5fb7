package typedjson

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"reflect"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// Unmarshal reads one JSON value into the object that v points to, which must be new.
// If it reports false the object is half read and of no use (J1).
func Unmarshal(data []byte, v any) bool {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return false
	}
	r := reader{data: data}
	r.space()
	if r.peek() != '{' || !r.value(planOf(p.Type().Elem()), p.UnsafePointer()) {
		return false
	}
	r.space()
	return r.at == len(data)
}

// A reader goes over JSON once. Its methods report false where they give up.
type reader struct {
	data  []byte
	at    int
	depth int
	room  []byte // where short strings are kept, one behind the other
}

const (
	deepest    = 200 // levels; more is left to others
	roomFor    = 512 // bytes of short strings that share an allocation
	longString = 128 // bytes of a string that gets its own
)

// peek returns the next byte, or 0 at the end.
func (r *reader) peek() byte {
	if r.at < len(r.data) {
		return r.data[r.at]
	}
	return 0
}

func (r *reader) space() {
	for r.at < len(r.data) && r.data[r.at] <= ' ' {
		switch r.data[r.at] {
		case ' ', '\n', '\t', '\r':
			r.at++
		default:
			return
		}
	}
}

// word takes a literal.
func (r *reader) word(w string) bool {
	if len(r.data)-r.at < len(w) || string(r.data[r.at:r.at+len(w)]) != w {
		return false
	}
	r.at += len(w)
	return true
}

// value reads what begins at the next byte into a value that is zero.
func (r *reader) value(p *plan, to unsafe.Pointer) bool {
	if p.read == own {
		return r.own(p, to)
	}
	if r.peek() == 'n' {
		return p.read != foreign && r.word("null")
	}
	switch p.read {
	case text:
		s, ok := r.text()
		if ok {
			*(*string)(to) = s
		}
		return ok
	case boolean:
		if r.peek() == 't' {
			*(*bool)(to) = true
			return r.word("true")
		}
		return r.word("false")
	case integer, cardinal:
		return r.number(p, to)
	case blob:
		return r.blob(to)
	case pointer:
		e := reflect.New(p.elem.typ)
		if !r.value(p.elem, e.UnsafePointer()) {
			return false
		}
		*(*unsafe.Pointer)(to) = e.UnsafePointer()
		return true
	case list, dictionary, stringMap, record:
		if r.depth++; r.depth > deepest {
			return false
		}
		ok := r.composite(p, to)
		r.depth--
		return ok
	case own, foreign:
	}
	return false
}

func (r *reader) composite(p *plan, to unsafe.Pointer) bool {
	begin := byte('{')
	if p.read == list {
		begin = '['
	}
	if r.peek() != begin {
		return false
	}
	r.at++
	r.space()
	switch p.read {
	case list:
		return r.list(p, to)
	case dictionary:
		return r.dictionary(p, to)
	case stringMap:
		return r.stringMap((*map[string]string)(to))
	default:
		return r.record(p, to)
	}
}

// member takes the name of a member up to its value.
func (r *reader) member() (name string, ok bool) {
	if name, ok = r.text(); !ok {
		return "", false
	}
	return name, r.colon()
}

func (r *reader) colon() bool {
	r.space()
	if r.peek() != ':' {
		return false
	}
	r.at++
	r.space()
	return true
}

// more takes what follows a member or element: whether there is another one.
func (r *reader) more(end byte) (more, ok bool) {
	r.space()
	c := r.peek()
	r.at++
	if c == ',' {
		r.space()
		return true, true
	}
	return false, c == end
}

func (r *reader) record(p *plan, to unsafe.Pointer) bool {
	if r.peek() == '}' {
		r.at++
		return true
	}
	var seen [mostFields / 64]uint64
	for {
		name, escaped, ok := r.quoted()
		if !ok || escaped || !r.colon() {
			return false
		}
		i, known := p.byName[string(name)]
		if !known || seen[i/64]&(1<<(i%64)) != 0 {
			return false
		}
		seen[i/64] |= 1 << (i % 64)
		f := &p.fields[i]
		if !r.value(f.plan, unsafe.Add(to, f.offset)) {
			return false
		}
		if more, ok := r.more('}'); !more {
			return ok
		}
	}
}

func (r *reader) stringMap(to *map[string]string) bool {
	m := map[string]string{}
	*to = m
	if r.peek() == '}' {
		r.at++
		return true
	}
	for {
		name, ok := r.member()
		if !ok {
			return false
		}
		var value string
		if r.peek() == 'n' {
			ok = r.word("null")
		} else {
			value, ok = r.text()
		}
		before := len(m)
		m[name] = value
		if !ok || len(m) == before {
			return false
		}
		if more, ok := r.more('}'); !more {
			return ok
		}
	}
}

func (r *reader) dictionary(p *plan, to unsafe.Pointer) bool {
	m := reflect.MakeMap(p.typ)
	reflect.NewAt(p.typ, to).Elem().Set(m)
	if r.peek() == '}' {
		r.at++
		return true
	}
	key, elem := reflect.New(p.typ.Key()).Elem(), reflect.New(p.elem.typ)
	for {
		name, ok := r.member()
		if !ok {
			return false
		}
		elem.Elem().SetZero()
		if !r.value(p.elem, elem.UnsafePointer()) {
			return false
		}
		key.SetString(name)
		before := m.Len()
		m.SetMapIndex(key, elem.Elem())
		if m.Len() == before {
			return false
		}
		if more, ok := r.more('}'); !more {
			return ok
		}
	}
}

// largeElem is the size from which room is made for one element at first: most lists of
// containers have one.
const largeElem = 256

// A slice is how Go lays one out.
type slice struct {
	data     unsafe.Pointer
	len, cap int
}

func (r *reader) list(p *plan, to unsafe.Pointer) bool {
	s := (*slice)(to)
	if r.peek() == ']' {
		r.at++
		*s = slice{data: reflect.MakeSlice(p.typ, 0, 0).UnsafePointer()}
		return true
	}
	room := 4
	if p.elem.size >= largeElem {
		room = 1
	}
	for {
		if s.len == s.cap {
			larger := reflect.MakeSlice(p.typ, s.len, max(room, 2*s.cap))
			reflect.Copy(larger, reflect.NewAt(p.typ, to).Elem())
			s.data, s.cap = larger.UnsafePointer(), larger.Cap()
		}
		s.len++
		if !r.value(p.elem, unsafe.Add(s.data, uintptr(s.len-1)*p.elem.size)) {
			return false
		}
		if more, ok := r.more(']'); !more {
			if s.cap > s.len { // objects live long: what is left over would, too
				exact := reflect.MakeSlice(p.typ, s.len, s.len)
				reflect.Copy(exact, reflect.NewAt(p.typ, to).Elem())
				s.data, s.cap = exact.UnsafePointer(), s.len
			}
			return ok
		}
	}
}

// number reads a whole number of at most 18 digits.
func (r *reader) number(p *plan, to unsafe.Pointer) bool {
	n, negative, ok := r.whole()
	if !ok {
		return false
	}
	v := reflect.NewAt(p.typ, to).Elem()
	if p.read == cardinal {
		if negative || v.OverflowUint(uint64(n)) {
			return false
		}
		v.SetUint(uint64(n))
		return true
	}
	if v.OverflowInt(n) {
		return false
	}
	v.SetInt(n)
	return true
}

// whole takes a number without a fraction or an exponent.
func (r *reader) whole() (n int64, negative, ok bool) {
	if negative = r.peek() == '-'; negative {
		r.at++
	}
	from := r.at
	for r.at < len(r.data) && '0' <= r.data[r.at] && r.data[r.at] <= '9' {
		n = n*10 + int64(r.data[r.at]-'0')
		if r.at++; r.at-from > 18 {
			return 0, false, false
		}
	}
	digits := r.at - from
	if digits == 0 || digits > 1 && r.data[from] == '0' {
		return 0, false, false
	}
	switch r.peek() {
	case '.', 'e', 'E':
		return 0, false, false
	}
	if negative {
		n = -n
	}
	return n, negative, true
}

func (r *reader) blob(to unsafe.Pointer) bool {
	raw, escaped, ok := r.quoted()
	if !ok || escaped {
		return false
	}
	b := make([]byte, base64.StdEncoding.DecodedLen(len(raw)))
	n, err := base64.StdEncoding.Decode(b, raw)
	if err != nil {
		return false
	}
	*(*[]byte)(to) = b[:n]
	return true
}

// own lets a type read its own JSON, which must be valid.
func (r *reader) own(p *plan, to unsafe.Pointer) bool {
	from := r.at
	switch r.peek() {
	case '"':
		if _, escaped, ok := r.quoted(); !ok || escaped && !json.Valid(r.data[from:r.at]) {
			return false
		}
	case '{', '[':
		if !r.skip() || !json.Valid(r.data[from:r.at]) {
			return false
		}
	default:
		for r.at < len(r.data) && bytes.IndexByte([]byte(",]} \n\t\r"), r.data[r.at]) < 0 {
			r.at++
		}
		if !json.Valid(r.data[from:r.at]) {
			return false
		}
	}
	return reflect.NewAt(p.typ, to).Interface().(json.Unmarshaler).UnmarshalJSON(r.data[from:r.at:r.at]) == nil
}

// skip goes to the end of the object or array that begins here, if it is one.
func (r *reader) skip() bool {
	for depth := 0; r.at < len(r.data); {
		switch r.data[r.at] {
		case '{', '[':
			if depth++; depth > deepest {
				return false
			}
		case '}', ']':
			if depth--; depth == 0 {
				r.at++
				return true
			}
		case '"':
			if _, _, ok := r.quoted(); !ok {
				return false
			}
			continue
		}
		r.at++
	}
	return false
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// quoted takes a string and returns the bytes between its quotes, which are UTF-8 without control
// characters. Escapes are neither checked nor replaced.
func (r *reader) quoted() (raw []byte, escaped, ok bool) {
	if r.peek() != '"' {
		return nil, false, false
	}
	d := r.data
	from := r.at + 1
	ascii := true
	for i := from; i < len(d); {
		if i+8 <= len(d) {
			// Eight bytes at once: none below 0x20 or above 0x7f, no quote, no backslash.
			x := binary.LittleEndian.Uint64(d[i:])
			q, b := x^ones*'"', x^ones*'\\'
			if (x|(x-ones*0x20)|(q-ones)&^q|(b-ones)&^b)&highs == 0 {
				i += 8
				continue
			}
		}
		switch c := d[i]; {
		case c == '"':
			r.at = i + 1
			raw = d[from:i]
			return raw, escaped, ascii || utf8.Valid(raw)
		case c == '\\':
			escaped = true
			i += 2
		case c < ' ':
			return nil, false, false
		default:
			ascii = ascii && c < utf8.RuneSelf
			i++
		}
	}
	return nil, false, false
}

// text takes a string.
func (r *reader) text() (string, bool) {
	raw, escaped, ok := r.quoted()
	if !ok {
		return "", false
	}
	if escaped {
		if raw, ok = unescape(raw); !ok {
			return "", false
		}
	}
	return r.keep(raw), true
}

// keep returns a copy. Short strings are shared with other objects if these have the same, and otherwise
// stand together: an object has dozens, which live and die with it.
func (r *reader) keep(b []byte) string {
	switch {
	case len(b) == 0:
		return ""
	case len(b) > longString:
		return string(b)
	}
	if s, ok := recent.find(b); ok {
		return s
	}
	if cap(r.room)-len(r.room) < len(b) {
		r.room = make([]byte, 0, max(len(b), min(roomFor, len(r.data)-r.at+len(b))))
	}
	at := len(r.room)
	r.room = append(r.room, b...)
	return unsafe.String(&r.room[at], len(b))
}

// unescape replaces the escapes in a string. Half a surrogate pair becomes U+FFFD.
func unescape(raw []byte) ([]byte, bool) {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' {
			out = append(out, c)
			i++
			continue
		}
		if i+1 == len(raw) {
			return nil, false
		}
		i += 2
		switch c = raw[i-1]; c {
		case '"', '\\', '/':
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			one := hex(raw[i:])
			if one < 0 {
				return nil, false
			}
			i += 4
			if utf16.IsSurrogate(one) {
				two := rune(-1)
				if i+1 < len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
					two = hex(raw[i+2:])
				}
				if one = utf16.DecodeRune(one, two); one != utf8.RuneError {
					i += 6
				}
			}
			out = utf8.AppendRune(out, one)
			continue
		default:
			return nil, false
		}
		out = append(out, c)
	}
	return out, true
}

// hex returns the number that four digits at the start of b are, or -1.
func hex(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var n rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		n = n<<4 | rune(c)
	}
	return n
}
