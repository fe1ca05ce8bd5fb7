package codec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
)

// A quantity is a number of any size: "1e-2147483648" takes minutes and gigabytes to parse,
// "1e2147483647" to be compared with another one, and three million digits half a minute. So
// quantities are checked in a body before it is decoded. Bodies that have no such text, which is
// nearly all of them, cost one search for it.

// Bounds of a quantity as it is written. Quantities are below 2^63 and have no more than nine
// decimal places; others are capped or rounded.
const (
	largestExponent = 999
	longestQuantity = 999
)

// CheckQuantities returns the first quantity in a decoded JSON object that is out of bounds. Obj has the type that the object is for.
func CheckQuantities(object any, obj any) error {
	return quantitiesIn(object, reflect.TypeOf(obj), nil)
}

// checkQuantitiesJSON is CheckQuantities for the JSON of an object. JSON that cannot be read is left to the decoder. It returns the
// cause of ctx if that is over.
func checkQuantitiesJSON(ctx context.Context, body []byte, obj any) error {
	if !mayHaveLargeQuantity(body) && !bytes.Contains(body, []byte(`\u00`)) || !hasQuantities(reflect.TypeOf(obj)) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	r := quantityReader{ctx: ctx, d: d}
	err := r.value(reflect.TypeOf(obj), nil)
	if errors.Is(err, errUnreadable) {
		return nil
	}
	return err
}

// errUnreadable ends a [quantityReader] where the text is not JSON: the decoder of the body reports the fault.
var errUnreadable = errors.New("not JSON")

// A quantityReader checks the quantities in a JSON text, token by token. It looks at all members of a name, as decoders do.
//
// Each token is read by next, and the first error ends all loops: More of a decoder stays true where a token cannot be read.
type quantityReader struct {
	ctx    context.Context
	d      *json.Decoder
	tokens int
}

// tokensBetweenLooks is how many tokens are read between two looks at the context: about a tenth of a millisecond.
const tokensBetweenLooks = 1 << 10

// next returns the next token. Its error is errUnreadable, or the cause of the context.
func (r *quantityReader) next() (json.Token, error) {
	if r.tokens++; r.tokens%tokensBetweenLooks == 0 && r.ctx.Err() != nil {
		return nil, context.Cause(r.ctx)
	}
	token, err := r.d.Token()
	if err != nil {
		return nil, errUnreadable
	}
	return token, nil
}

// value checks the quantities in the next value, which is for the type t.
func (r *quantityReader) value(t reflect.Type, at *place) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !hasQuantities(t) {
		return r.skip()
	}
	token, err := r.next()
	if err != nil {
		return err
	}
	switch v := token.(type) {
	case string:
		if t == quantityType {
			return checkQuantity(v, at)
		}
	case json.Number:
		if t == quantityType {
			return checkQuantity(v.String(), at)
		}
	case json.Delim:
		return r.composite(v, t, at)
	}
	return nil
}

// composite checks the rest of an object or a list.
func (r *quantityReader) composite(begin json.Delim, t reflect.Type, at *place) error {
	for i := 0; r.d.More(); i++ {
		inner, where := t, at.item(i)
		if begin == '{' {
			name, err := r.next()
			if err != nil {
				return err
			}
			text, ok := name.(string)
			if !ok {
				return errUnreadable
			}
			inner, where = memberOf(t, text, at)
		} else if t.Kind() == reflect.Slice {
			inner = t.Elem()
		}
		if err := r.value(inner, where); err != nil {
			return err
		}
	}
	_, err := r.next() // its end
	return err
}

// skip reads the next value.
func (r *quantityReader) skip() error {
	for depth := 0; ; {
		token, err := r.next()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth <= 0 {
			return nil
		}
	}
}

// A place is where a value stands in a document; nil is the document. It becomes text for an error alone: a key of a
// megabyte would otherwise be copied for each value below it.
type place struct {
	above *place
	name  string // of the member
	form  byte   // of the text: '.' of a field, '[' of a key or an index
	index int    // if name is empty and form is '['
}

func (p *place) field(name string) *place { return &place{above: p, name: name, form: '.'} }
func (p *place) key(name string) *place   { return &place{above: p, name: name, form: '['} }
func (p *place) item(i int) *place        { return &place{above: p, form: '[', index: i} }

// longestPlace is how many bytes of a path an error shows.
const longestPlace = 1 << 10

// String returns the path: the end of one that is too long for an error.
func (p *place) String() string {
	var parts []string
	size := 0
	for ; p != nil && size <= longestPlace; p = p.above {
		var part string
		switch {
		case p.form == '[' && p.name == "":
			part = "[" + strconv.Itoa(p.index) + "]"
		case p.form == '[':
			part = "[" + p.name + "]"
		case p.above == nil:
			part = p.name
		default:
			part = "." + p.name
		}
		parts = append(parts, part)
		size += len(part)
	}
	slices.Reverse(parts)
	text := strings.Join(parts, "")
	if len(text) > longestPlace {
		text = "…" + text[len(text)-longestPlace:]
	}
	return text
}

var noQuantities = reflect.TypeFor[bool]()

// memberOf returns the type and the place of a member of a JSON object that is for the type t.
func memberOf(t reflect.Type, name string, at *place) (member reflect.Type, where *place) {
	switch t.Kind() {
	case reflect.Map:
		return t.Elem(), at.key(name)
	case reflect.Struct:
		if member, ok := fieldsOf(t).named[name]; ok {
			return member, at.field(name)
		}
	default:
	}
	return noQuantities, at
}

// fields are the fields of a struct by their names in JSON and their numbers in protobuf.
type fields struct {
	named    map[string]reflect.Type
	numbered map[uint64]reflect.StructField
}

var knownFields sync.Map // [reflect.Type]*fields: a cache, as encoding/json has one

func fieldsOf(t reflect.Type) *fields {
	if known, ok := knownFields.Load(t); ok {
		return known.(*fields)
	}
	all := &fields{named: map[string]reflect.Type{}, numbered: map[uint64]reflect.StructField{}}
	var embedded []reflect.Type
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "" && name != "-":
			all.named[name] = f.Type
		case name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct:
			embedded = append(embedded, f.Type)
		}
		// As in `protobuf:"bytes,1,opt,name=metadata"`.
		_, tag, _ := strings.Cut(f.Tag.Get("protobuf"), ",")
		text, _, _ := strings.Cut(tag, ",")
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			if _, ok := all.numbered[n]; !ok {
				all.numbered[n] = f
			}
		}
	}
	for _, e := range embedded {
		for name, member := range fieldsOf(e).named {
			if _, ok := all.named[name]; !ok {
				all.named[name] = member
			}
		}
	}
	knownFields.Store(t, all)
	return all
}

// checkQuantitiesProtobuf is CheckQuantities for the protobuf message of an object.
func checkQuantitiesProtobuf(body []byte, obj any) error {
	if !mayHaveLargeQuantity(body) || !hasQuantities(reflect.TypeOf(obj)) {
		return nil
	}
	return quantitiesInMessage(body, reflect.TypeOf(obj), nil)
}

// mayHaveLargeQuantity reports whether b has an "e" after a digit or a point and before four
// digits, with or without a sign, or many digits in a row. It looks at every fourth byte, as both have four digits or points in a row.
func mayHaveLargeQuantity(b []byte) bool {
	for i := 3; i < len(b); i += 4 {
		if !inNumber(b[i]) {
			continue
		}
		from, to := i, i+1
		for from > 0 && inNumber(b[from-1]) {
			from--
		}
		for to < len(b) && inNumber(b[to]) {
			to++
		}
		if to-from >= longestQuantity-2 || to-from >= 4 && afterExponent(b[:from]) && !bytes.Contains(b[from:from+4], []byte(".")) {
			return true
		}
		i = to - 1 // what follows is in no number
	}
	return false
}

// inNumber reports whether c is a digit or a point.
func inNumber(c byte) bool { return '0' <= c && c <= '9' || c == '.' }

// afterExponent reports whether b ends with an "e" after a digit or a point, with or without a sign.
func afterExponent(b []byte) bool {
	if n := len(b); n > 0 && (b[n-1] == '+' || b[n-1] == '-') {
		b = b[:n-1]
	}
	n := len(b)
	return n > 1 && b[n-1]|0x20 == 'e' && inNumber(b[n-2])
}

// checkQuantity checks one quantity as it is written. Text that is none is left to the parser.
func checkQuantity(text string, path *place) error {
	text = strings.TrimSpace(text)
	if len(text) > longestQuantity {
		return fmt.Errorf("%s: a quantity must have at most %d characters, got %d", path, longestQuantity, len(text))
	}
	at := strings.IndexAny(text, "eE")
	if at < 0 || at == len(text)-1 { // "1E" has the suffix of 10^18
		return nil
	}
	exponent, err := strconv.Atoi(text[at+1:])
	switch {
	case err != nil && !strings.Contains(err.Error(), strconv.ErrRange.Error()):
		return nil // "1Ei" is a quantity, "1ex" is none and refused by the parser
	case err == nil && -largestExponent <= exponent && exponent <= largestExponent:
		return nil
	}
	return fmt.Errorf("%s: the exponent of a quantity must be between -%d and %d, got %q", path, largestExponent, largestExponent, text)
}

// largestField is the largest number of a field in protobuf.
const largestField = 1<<29 - 1

var quantityType = reflect.TypeFor[resource.Quantity]()

// withQuantities remembers which types contain quantities.
var withQuantities sync.Map // [reflect.Type]bool: a cache, as encoding/json has one

func hasQuantities(t reflect.Type) bool {
	if has, ok := withQuantities.Load(t); ok {
		return has.(bool)
	}
	has := findQuantity(t, map[reflect.Type]bool{})
	withQuantities.Store(t, has)
	return has
}

func findQuantity(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == quantityType {
		return true
	}
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return findQuantity(t.Elem(), seen)
	case reflect.Struct:
		for f := range t.Fields() {
			if f.IsExported() && findQuantity(f.Type, seen) {
				return true
			}
		}
	default:
	}
	return false
}

// quantitiesIn checks the quantities in a JSON value that is for the type t.
func quantitiesIn(value any, t reflect.Type, path *place) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == quantityType {
		switch v := value.(type) {
		case string:
			return checkQuantity(v, path)
		case json.Number:
			return checkQuantity(v.String(), path)
		}
		return nil
	}
	if !hasQuantities(t) {
		return nil
	}
	switch v := value.(type) {
	case []any:
		if t.Kind() != reflect.Slice {
			return nil
		}
		for i := range v {
			if err := quantitiesIn(v[i], t.Elem(), path.item(i)); err != nil {
				return err
			}
		}
	case map[string]any:
		return quantitiesInObject(v, t, path)
	}
	return nil
}

func quantitiesInObject(object map[string]any, t reflect.Type, path *place) error {
	switch t.Kind() {
	case reflect.Map:
		for key, value := range object {
			if err := quantitiesIn(value, t.Elem(), path.key(key)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" && f.Anonymous {
				if err := quantitiesInObject(object, f.Type, path); err != nil {
					return err
				}
				continue
			}
			if value, ok := object[name]; ok && name != "-" {
				if err := quantitiesIn(value, f.Type, path.field(name)); err != nil {
					return err
				}
			}
		}
	default:
	}
	return nil
}

// quantitiesInMessage checks the quantities in a protobuf message of the type t. A message with a field that decoders may read
// in another way is refused: groups, field numbers beyond the limit, and members of a map's entry that have no length.
func quantitiesInMessage(message []byte, t reflect.Type, path *place) error {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if !hasQuantities(t) {
		return nil
	}
	for rest := message; len(rest) > 0; {
		var tag uint64
		var payload []byte
		var err error
		if tag, payload, rest, err = field(rest); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		number := tag >> 3
		switch {
		case number == 0 || number > largestField:
			err = fmt.Errorf("%s: protobuf has the field number %d, want 1 to %d", path, number, largestField)
		case t.Kind() == reflect.Map && number <= 2 && tag&7 != 2:
			err = fmt.Errorf("%s: protobuf has the wire type %d in the entry of a map, want 2", path, tag&7)
		case tag&7 != 2:
		case t == quantityType:
			if number == 1 {
				err = checkQuantity(string(payload), path)
			}
		case t.Kind() == reflect.Map: // an entry: its key is field 1, its value field 2
			if number == 2 {
				err = quantitiesInMessage(payload, t.Elem(), path)
			}
		case t.Kind() == reflect.Struct:
			if f, ok := fieldsOf(t).numbered[number]; ok {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				at := path
				if name != "" {
					at = path.field(name)
				}
				err = quantitiesInMessage(payload, f.Type, at)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
