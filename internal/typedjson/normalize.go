package typedjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"time"
	"unicode/utf8"
	"unsafe"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A ValueError says which value of an object not every encoding can carry.
type ValueError struct {
	Field   string // path to the value, as in "spec.ports[0].targetPort"
	Message string
}

func (e *ValueError) Error() string { return e.Field + ": " + e.Message }

// Normalize gives the object that v points to the form that it has after it went through any
// of the API's encodings, or returns a [*ValueError] if one of them cannot carry it (J4).
//
//	empty lists and maps         become nil
//	empty bytes                  become nil, and in a map the other way round
//	Time                         is cut to whole seconds, its year is 0 to 9999
//	MicroTime                    is cut to whole microseconds, its year is 0 to 9999
//	a pointer to a zero time     becomes nil
//	IntOrString                  has the type 0 or 1, and no value of the other type
//	RawExtension and FieldsV1    are empty or JSON without insignificant space
//	float64                      is finite
//	JSON of a schema             is JSON without insignificant space
//	strings, and keys of maps    are UTF-8
//
// It writes only what differs, so a normalized object may be read at the same time. On an
// error the object is half normalized.
func Normalize(v any) error {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return fmt.Errorf("typedjson: cannot normalize a %T", v)
	}
	_, err := normalize(planOf(p.Type().Elem()), p.UnsafePointer())
	return err
}

// A rule says how values of a type are normalized.
type rule uint8

const (
	byForm    rule = iota // as the form of writing says
	nothing               // every encoding carries every value
	time0                 // metav1.Time
	microTime             // metav1.MicroTime
	intOrText             // intstr.IntOrString
	rawObject             // runtime.RawExtension
	rawFields             // metav1.FieldsV1
	fraction              // float64
	rawValue              // apiextensionsv1.JSON
	schemaOr              // the types of schemas of custom resources that are a schema or something else
)

// ruleOf returns the rule of a plan that is complete, apart from types that contain themselves.
func ruleOf(p *plan) rule {
	switch p.typ {
	case reflect.TypeFor[metav1.Time]():
		return time0
	case reflect.TypeFor[metav1.MicroTime]():
		return microTime
	case reflect.TypeFor[intstr.IntOrString]():
		return intOrText
	case reflect.TypeFor[runtime.RawExtension]():
		return rawObject
	case reflect.TypeFor[metav1.FieldsV1]():
		return rawFields
	case reflect.TypeFor[float64]():
		return fraction
	case reflect.TypeFor[apiextensionsv1.JSON]():
		return rawValue
	case reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrArray](), reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrBool](),
		reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrStringArray]():
		return schemaOr
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[metav1.Duration]():
		return nothing
	}
	switch p.write {
	case boolean, integer, cardinal:
		return nothing
	case pointer:
		if p.elem.rule == nothing {
			return nothing
		}
	case foreign, text, blob, list, dictionary, stringMap, record, own:
	}
	return byForm
}

// refersOf returns whether values of a plan begin with a pointer: texts, lists, maps and pointers do. One that is nil is no text or
// list, and no map.
func refersOf(p *plan) bool {
	if p.rule != byForm {
		return false
	}
	switch p.write {
	case text, blob, pointer, list, dictionary, stringMap:
		return true
	case foreign, boolean, integer, cardinal, record, own:
	}
	return false
}

// normalize returns whether it wrote to the value itself.
func normalize(p *plan, at unsafe.Pointer) (changed bool, err error) {
	switch p.rule {
	case nothing:
		return false, nil
	case time0:
		return normalizeTime(&(*metav1.Time)(at).Time, time.Second)
	case microTime:
		return normalizeTime(&(*metav1.MicroTime)(at).Time, time.Microsecond)
	case intOrText:
		return normalizeIntOrString((*intstr.IntOrString)(at))
	case rawObject:
		return normalizeExtension((*runtime.RawExtension)(at))
	case rawFields:
		return normalizeFields((*metav1.FieldsV1)(at))
	case fraction:
		if f := *(*float64)(at); math.IsNaN(f) || math.IsInf(f, 0) {
			return false, &ValueError{Message: fmt.Sprintf("must be a finite number, got %v", f)}
		}
		return false, nil
	case rawValue:
		return normalizeValue((*apiextensionsv1.JSON)(at))
	case schemaOr:
		return normalizeSchemaOr(reflect.NewAt(p.typ, at).Interface())
	case byForm:
	}
	switch p.write {
	case text:
		return false, checkText(*(*string)(at))
	case blob:
		b := (*[]byte)(at)
		changed = *b != nil && len(*b) == 0
		if changed {
			*b = nil
		}
		return changed, nil
	case pointer:
		return normalizePointer(p, (*unsafe.Pointer)(at))
	case list:
		return normalizeList(p, (*slice)(at))
	case stringMap:
		return normalizeStringMap((*map[string]string)(at))
	case dictionary:
		return normalizeDictionary(p, reflect.NewAt(p.typ, at).Elem())
	case record:
		return normalizeRecord(p, at)
	case boolean, integer, cardinal:
		return false, nil
	case own, foreign:
	}
	return false, &ValueError{Message: fmt.Sprintf("a %v cannot be normalized", p.typ)}
}

// in returns err for a value that is part of another one.
func in(err error, part string) error {
	e, ok := err.(*ValueError) //nolint:errorlint // made by this package and not wrapped
	switch {
	case !ok:
		return err
	case e.Field != "" && e.Field[0] != '[':
		part += "."
	}
	return &ValueError{Field: part + e.Field, Message: e.Message}
}

func checkText(s string) error {
	if utf8.ValidString(s) {
		return nil
	}
	return &ValueError{Message: fmt.Sprintf("must be UTF-8, got %+q", shortened(s))}
}

// shortened returns what a message quotes of s.
func shortened(s string) string {
	const enough = 64
	if len(s) <= enough {
		return s
	}
	return s[:enough] + "..."
}

func normalizePointer(p *plan, at *unsafe.Pointer) (changed bool, err error) {
	if *at == nil {
		return false, nil
	}
	if _, err := normalize(p.elem, *at); err != nil {
		return false, err
	}
	// In JSON these are null, which is read as no pointer.
	switch p.elem.rule {
	case time0:
		changed = (*metav1.Time)(*at).IsZero()
	case microTime:
		changed = (*metav1.MicroTime)(*at).IsZero()
	case rawFields:
		changed = len((*metav1.FieldsV1)(*at).GetRawBytes()) == 0
	case byForm, nothing, intOrText, rawObject, fraction, rawValue, schemaOr:
	}
	if changed {
		*at = nil
	}
	return changed, nil
}

func normalizeList(p *plan, s *slice) (changed bool, err error) {
	if s.len == 0 {
		changed = s.data != nil
		if changed {
			*s = slice{}
		}
		return changed, nil
	}
	if p.elem.rule == nothing {
		return false, nil
	}
	for i := range s.len {
		if _, err := normalize(p.elem, unsafe.Add(s.data, uintptr(i)*p.elem.size)); err != nil {
			return false, in(err, fmt.Sprintf("[%d]", i))
		}
	}
	return false, nil
}

func normalizeStringMap(m *map[string]string) (changed bool, err error) {
	if len(*m) == 0 {
		changed = *m != nil
		if changed {
			*m = nil
		}
		return changed, nil
	}
	for k, v := range *m {
		if err := checkText(k); err != nil {
			return false, in(err, "key")
		}
		if err := checkText(v); err != nil {
			return false, in(err, "["+k+"]")
		}
	}
	return false, nil
}

func normalizeDictionary(p *plan, m reflect.Value) (changed bool, err error) {
	if m.Len() == 0 {
		changed = !m.IsNil()
		if changed {
			m.SetZero()
		}
		return changed, nil
	}
	elem := reflect.New(p.elem.typ)
	for it := m.MapRange(); it.Next(); {
		key := it.Key().String()
		if err := checkText(key); err != nil {
			return false, in(err, "key")
		}
		if p.elem.rule == nothing {
			continue
		}
		elem.Elem().SetIterValue(it)
		rewrite := false
		if p.elem.write == blob { // an entry has bytes, if none
			if rewrite = elem.Elem().IsNil(); rewrite {
				elem.Elem().SetBytes([]byte{})
			}
		} else if rewrite, err = normalize(p.elem, elem.UnsafePointer()); err != nil {
			return false, in(err, "["+key+"]")
		}
		if rewrite {
			m.SetMapIndex(it.Key(), elem.Elem())
		}
	}
	return false, nil
}

func normalizeRecord(p *plan, at unsafe.Pointer) (changed bool, err error) {
	for i := range p.fields {
		f := &p.fields[i]
		if f.plan.rule == nothing || f.plan.refers && *(*unsafe.Pointer)(unsafe.Add(at, f.offset)) == nil {
			continue
		}
		wrote, err := normalize(f.plan, unsafe.Add(at, f.offset))
		if err != nil {
			return false, in(err, f.name)
		}
		changed = changed || wrote
	}
	return changed, nil
}

// The times that RFC 3339 can write, in seconds since 1970.
var (
	firstTime = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	lastTime  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).Unix()
)

func normalizeTime(t *time.Time, unit time.Duration) (changed bool, err error) {
	// A time that is far out of range has wrapped around: its year may look right.
	if s := t.Unix(); s < firstTime || s > lastTime {
		return false, &ValueError{Message: fmt.Sprintf("must be a time in the years 0 to 9999, got %d seconds since 1970", s)}
	}
	if t.Nanosecond()%int(unit) == 0 {
		return false, nil
	}
	// Truncate counts from the year 1: with it a time before would become a later one.
	*t = t.Add(-time.Duration(t.Nanosecond() % int(unit))).Round(0)
	return true, nil
}

func normalizeIntOrString(v *intstr.IntOrString) (changed bool, err error) {
	switch v.Type {
	case intstr.Int:
		changed = v.StrVal != ""
		if changed {
			v.StrVal = ""
		}
		return changed, nil
	case intstr.String:
		changed = v.IntVal != 0
		if changed {
			v.IntVal = 0
		}
		return changed, checkText(v.StrVal)
	}
	return false, &ValueError{Message: fmt.Sprintf("must be an integer (type 0) or a string (type 1), got type %d", v.Type)}
}

func normalizeExtension(e *runtime.RawExtension) (changed bool, err error) {
	if e.Raw == nil && e.Object != nil {
		return false, &ValueError{Message: fmt.Sprintf("must be JSON, got a %T", e.Object)}
	}
	if changed, err = normalizeRaw(&e.Raw); err != nil || e.Raw == nil {
		return changed, err
	}
	// The JSON of FieldsV1 has no numbers, that of an extension is decoded by its readers.
	var decoded any
	if err := json.Unmarshal(e.Raw, &decoded); err != nil {
		return false, &ValueError{Message: "must be JSON whose numbers fit into 64 bits: " + err.Error()}
	}
	return changed, nil
}

// normalizeValue is for any JSON value in a schema, such as a default.
func normalizeValue(v *apiextensionsv1.JSON) (changed bool, err error) {
	if changed, err = normalizeRaw(&v.Raw); err != nil || v.Raw == nil {
		return changed, err
	}
	var decoded any
	if err := json.Unmarshal(v.Raw, &decoded); err != nil {
		return false, &ValueError{Message: "must be JSON whose numbers fit into 64 bits: " + err.Error()}
	}
	return changed, nil
}

// normalizeSchemaOr is for a pointer to a value that is a schema or something else. It writes to the schemas, and not to the
// value itself.
func normalizeSchemaOr(v any) (changed bool, err error) {
	var schema *apiextensionsv1.JSONSchemaProps
	var names []string
	switch v := v.(type) {
	case *apiextensionsv1.JSONSchemaPropsOrArray:
		for i := range v.JSONSchemas {
			if err := Normalize(&v.JSONSchemas[i]); err != nil {
				return false, in(err, fmt.Sprintf("[%d]", i))
			}
		}
		schema = v.Schema
	case *apiextensionsv1.JSONSchemaPropsOrBool:
		schema = v.Schema
	case *apiextensionsv1.JSONSchemaPropsOrStringArray:
		schema, names = v.Schema, v.Property
	}
	for i, name := range names {
		if err := checkText(name); err != nil {
			return false, in(err, fmt.Sprintf("[%d]", i))
		}
	}
	if schema == nil {
		return false, nil
	}
	return false, Normalize(schema)
}

func normalizeFields(f *metav1.FieldsV1) (changed bool, err error) {
	raw := f.GetRawBytes()
	if changed, err = normalizeRaw(&raw); changed {
		f.SetRawBytes(raw)
	}
	return changed, err
}

// normalizeRaw gives raw the form in which encoding/json writes it.
func normalizeRaw(raw *[]byte) (changed bool, err error) {
	if *raw == nil {
		return false, nil
	}
	if len(*raw) == 0 {
		*raw = nil
		return true, nil
	}
	if !utf8.Valid(*raw) {
		return false, &ValueError{Message: fmt.Sprintf("must be JSON in UTF-8, got %+q", shortened(string(*raw)))}
	}
	plain, err := json.Marshal(json.RawMessage(*raw))
	switch {
	case err != nil:
		return false, &ValueError{Message: fmt.Sprintf("must be JSON, got %+q", shortened(string(*raw)))}
	case string(plain) == "null":
		*raw = nil
		return true, nil
	case bytes.Equal(plain, *raw):
		return false, nil
	}
	*raw = plain
	return true, nil
}
