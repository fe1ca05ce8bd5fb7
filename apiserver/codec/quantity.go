package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
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
// decimal places; what is beyond that is capped or rounded.
const (
	largestExponent = 999
	longestQuantity = 999
)

// CheckQuantities returns the first quantity in a decoded JSON object that is out of bounds. Obj has the type that the object is for.
func CheckQuantities(object any, obj any) error {
	return quantitiesIn(object, reflect.TypeOf(obj), "")
}

// checkQuantitiesJSON is CheckQuantities for the JSON of an object. JSON that cannot be read is left to the decoder.
func checkQuantitiesJSON(body []byte, obj any) error {
	if !mayHaveLargeQuantity(body) && !bytes.Contains(body, []byte(`\u00`)) || !hasQuantities(reflect.TypeOf(obj)) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return quantitiesInTokens(d, reflect.TypeOf(obj), "")
}

// quantitiesInTokens checks the quantities in the next JSON value of d, which is for the type t. It looks at all members of a name,
// as decoders do.
func quantitiesInTokens(d *json.Decoder, t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !hasQuantities(t) {
		skipTokens(d)
		return nil
	}
	token, err := d.Token()
	if err != nil {
		return nil //nolint:nilerr // the decoder of the body says what is wrong
	}
	switch v := token.(type) {
	case string:
		if t == quantityType {
			return checkQuantity(v, path)
		}
	case json.Number:
		if t == quantityType {
			return checkQuantity(v.String(), path)
		}
	case json.Delim:
		for i := 0; d.More(); i++ {
			inner, at := t, fmt.Sprintf("%s[%d]", path, i)
			if v == '{' {
				name, err := d.Token()
				if err != nil {
					return nil //nolint:nilerr // as above
				}
				inner, at = memberOf(t, name.(string), path) // d returns no other tokens here
			} else if t.Kind() == reflect.Slice {
				inner = t.Elem()
			}
			if err := quantitiesInTokens(d, inner, at); err != nil {
				return err
			}
		}
		_, _ = d.Token() // its end
	}
	return nil
}

var noQuantities = reflect.TypeFor[bool]() //nolint:gochecknoglobals // a constant

// memberOf returns the type and the path of a member of a JSON object that is for the type t.
func memberOf(t reflect.Type, name, path string) (member reflect.Type, at string) {
	switch t.Kind() {
	case reflect.Map:
		return t.Elem(), fmt.Sprintf("%s[%s]", path, name)
	case reflect.Struct:
		for f := range t.Fields() {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case tag == name && name != "-" && name != "":
				return f.Type, join(path, name)
			case tag == "" && f.Anonymous && f.Type.Kind() == reflect.Struct:
				if member, at = memberOf(f.Type, name, path); member != noQuantities {
					return member, at
				}
			}
		}
	default:
	}
	return noQuantities, path
}

// skipTokens reads the next JSON value of d.
func skipTokens(d *json.Decoder) {
	for depth := 0; ; {
		token, err := d.Token()
		if err != nil {
			return
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth <= 0 {
			return
		}
	}
}

// checkQuantitiesProtobuf is CheckQuantities for the protobuf message of an object.
func checkQuantitiesProtobuf(body []byte, obj any) error {
	if !mayHaveLargeQuantity(body) || !hasQuantities(reflect.TypeOf(obj)) {
		return nil
	}
	return quantitiesInMessage(body, reflect.TypeOf(obj), "")
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
func checkQuantity(text, path string) error {
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
		return nil //nolint:nilerr // "1Ei" is a quantity, "1ex" is none and refused by the parser
	case err == nil && -largestExponent <= exponent && exponent <= largestExponent:
		return nil
	}
	return fmt.Errorf("%s: the exponent of a quantity must be between -%d and %d, got %q", path, largestExponent, largestExponent, text)
}

// largestField is the largest number of a field in protobuf.
const largestField = 1<<29 - 1

var quantityType = reflect.TypeFor[resource.Quantity]() //nolint:gochecknoglobals // a constant

// withQuantities remembers which types contain quantities.
var withQuantities sync.Map //nolint:gochecknoglobals // [reflect.Type]bool: a cache, as encoding/json has one

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
func quantitiesIn(value any, t reflect.Type, path string) error {
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
			if err := quantitiesIn(v[i], t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		return quantitiesInObject(v, t, path)
	}
	return nil
}

func quantitiesInObject(object map[string]any, t reflect.Type, path string) error {
	switch t.Kind() {
	case reflect.Map:
		for key, value := range object {
			if err := quantitiesIn(value, t.Elem(), fmt.Sprintf("%s[%s]", path, key)); err != nil {
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
				if err := quantitiesIn(value, f.Type, join(path, name)); err != nil {
					return err
				}
			}
		}
	default:
	}
	return nil
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// quantitiesInMessage checks the quantities in a protobuf message of the type t. A message with a field that decoders may read
// in another way is refused: groups, field numbers beyond the limit, and members of a map's entry that have no length.
func quantitiesInMessage(message []byte, t reflect.Type, path string) error {
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
			if f, ok := fieldNumbered(t, number); ok {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				at := path
				if name != "" {
					at = join(path, name)
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

// fieldNumbered returns the field of a struct that has a number in protobuf.
func fieldNumbered(t reflect.Type, number uint64) (reflect.StructField, bool) {
	for f := range t.Fields() {
		// As in `protobuf:"bytes,1,opt,name=metadata"`.
		_, tag, _ := strings.Cut(f.Tag.Get("protobuf"), ",")
		text, _, _ := strings.Cut(tag, ",")
		if n, err := strconv.ParseUint(text, 10, 64); err == nil && n == number {
			return f, true
		}
	}
	return reflect.StructField{}, false
}
