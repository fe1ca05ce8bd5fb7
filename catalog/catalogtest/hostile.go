package catalogtest

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/catalog"
)

// Values that protobuf can carry, and JSON cannot or only as others.
var (
	hostileTexts = []string{
		"", "\x00\x1b", "\u0085\u2028\ufeff\ufffe", "\ufffd", "\xc3", "a\xffb", "\xed\xa0\x80", "~", "null", "true", "0x1f", "1e3", "- a", "a: b", "a\n b\n", "#", "'\"`", "%", "100%", "-1%", "/", "..", "*",
	}
	hostileTimes = []time.Time{
		{},
		time.Unix(0, 0), time.Unix(1, 999_999_999), time.Unix(-1, 1), time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 999, time.UTC), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(math.MaxInt64, 0), time.Unix(math.MinInt64, 0),
	}
	hostileNumbers = []intstr.IntOrString{
		{},
		{IntVal: -1},
		{IntVal: math.MaxInt32},
		{IntVal: 80, StrVal: "a"},
		{Type: intstr.String},
		{Type: intstr.String, IntVal: 5, StrVal: "50%"},
		{Type: intstr.String, StrVal: "99999999999999999999%"},
		{Type: intstr.String, StrVal: "\xff"},
		{Type: 7, IntVal: 80},
		{Type: -1},
		{Type: math.MaxInt64},
	}
	hostileRaws = []string{"", "null", ` { "a" : [ 1 , "<" ] } `, `"a"`, "1e999999", "\xd9\xd9\xf7\xa0", "{", "{}{}", "\"\xff\"", "nul", "\x00", `{"f:metadata":{"f:name":{}}}`, "[[[[", `{"a":{},"a":1}`}
)

// Spoil replaces about one in rarely of the values within obj by one that no client of good
// will sends: types of IntOrString that do not exist, raw JSON that is none, text that is not
// UTF-8, times that cannot be written, negative and huge numbers, empty lists and maps.
// The same seed spoils the same object in the same way.
func Spoil(obj catalog.Object, seed uint64, rarely int) {
	s := spoiler{rand.New(rand.NewPCG(seed, 1)), rarely}
	s.spoil(reflect.ValueOf(obj).Elem())
}

type spoiler struct {
	*rand.Rand
	rarely int
}

func pick[T any](s *spoiler, from []T) T { return from[s.IntN(len(from))] }

func (s *spoiler) spoil(v reflect.Value) {
	odd := s.IntN(s.rarely) == 0
	switch p := v.Addr().Interface().(type) {
	case *metav1.TypeMeta:
		return
	case *metav1.Time:
		if odd {
			p.Time = pick(s, hostileTimes)
		}
		return
	case *metav1.MicroTime:
		if odd {
			p.Time = pick(s, hostileTimes)
		}
		return
	case *intstr.IntOrString:
		if odd {
			*p = pick(s, hostileNumbers)
		}
		return
	case *runtime.RawExtension:
		if odd {
			p.Raw = []byte(pick(s, hostileRaws))
		}
		return
	case *metav1.FieldsV1:
		if odd {
			p.SetRawString(pick(s, hostileRaws))
		}
		return
	}
	s.spoilKind(v, odd)
}

func (s *spoiler) spoilKind(v reflect.Value, odd bool) {
	switch v.Kind() {
	case reflect.String:
		if odd {
			v.SetString(pick(s, hostileTexts))
		}
	case reflect.Int32, reflect.Int64:
		if odd {
			v.SetInt(pick(s, []int64{0, -1, math.MinInt32, math.MaxInt32}))
		}
	case reflect.Pointer:
		switch {
		case odd && v.IsNil():
			v.Set(reflect.New(v.Type().Elem()))
		case odd && s.IntN(2) == 0:
			v.SetZero()
			return
		}
		if !v.IsNil() {
			s.spoil(v.Elem())
		}
	case reflect.Slice:
		if odd {
			v.Set(reflect.MakeSlice(v.Type(), s.IntN(2), 2))
		}
		for i := range v.Len() {
			s.spoil(v.Index(i))
		}
	case reflect.Map:
		s.spoilMap(v, odd)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				s.spoil(v.Field(i))
			}
		}
	default:
	}
}

func (s *spoiler) spoilMap(v reflect.Value, odd bool) {
	if odd {
		v.Set(reflect.MakeMap(v.Type()))
		for range s.IntN(2) {
			key := reflect.New(v.Type().Key()).Elem()
			key.SetString(pick(s, hostileTexts))
			v.SetMapIndex(key, reflect.New(v.Type().Elem()).Elem())
		}
		return
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range keys {
		elem := reflect.New(v.Type().Elem()).Elem()
		elem.Set(v.MapIndex(key))
		s.spoil(elem)
		v.SetMapIndex(key, elem)
	}
}
