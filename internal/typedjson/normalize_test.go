package typedjson_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/typedjson"
)

// odds are values that some encoding cannot carry, or carries as another one. The first ones
// of each type can be normalized.
var (
	oddTimes = []time.Time{
		{},
		time.Unix(0, 0), time.Unix(1, 999_999_999), time.Unix(-1, 1), time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1, 1, 1, 0, 0, 0, 5, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 999, time.UTC), time.Unix(math.MaxInt64, 0), time.Unix(math.MinInt64, 0), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(math.MaxInt64/2, 7),
	}
	oddNumbers = []intstr.IntOrString{{IntVal: 5, StrVal: "a"}, {Type: 1, IntVal: 5, StrVal: "a"}, {Type: 1, StrVal: "\xff"}, {Type: 7}, {Type: -1, IntVal: 1}}
	oddRaws    = []string{"", "null", ` { "a" : [ 1 , "<" ] } `, `"a"`, "1e999999", "\xd9\xd9\xf7\xa0", "{", "{}{}", "\"\xff\"", "nul", "\x00"}
	oddTexts   = []string{"", "ü", "\x00\x1b", "\u2028\ufeff\ufffe", "\ufffd", "\xc3", "a\xffb", "\xed\xa0\x80"}
)

// spoil replaces values of what v points to by odd ones, one of rarely.
func spoil(r *rand.Rand, v reflect.Value, rarely int) {
	odd := r.IntN(rarely) == 0
	switch p := v.Addr().Interface().(type) {
	case *metav1.TypeMeta:
		*p = metav1.TypeMeta{} // protobuf has none
		return
	case *metav1.Time:
		if odd {
			p.Time = oddTimes[r.IntN(len(oddTimes))]
		}
		return
	case *metav1.MicroTime:
		if odd {
			p.Time = oddTimes[r.IntN(len(oddTimes))]
		}
		return
	case *intstr.IntOrString:
		if odd {
			*p = oddNumbers[r.IntN(len(oddNumbers))]
		}
		return
	case *runtime.RawExtension:
		if odd {
			p.Raw = []byte(oddRaws[r.IntN(len(oddRaws))])
		}
		return
	case *metav1.FieldsV1:
		if odd {
			p.SetRawString(oddRaws[r.IntN(len(oddRaws))])
		}
		return
	case *string:
		*p = strings.ToValidUTF8(*p, "?")
		if odd {
			*p = oddTexts[r.IntN(len(oddTexts))]
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.ToValidUTF8(v.String(), "?"))
	case reflect.Pointer:
		if !v.IsNil() {
			spoil(r, v.Elem(), rarely)
		}
	case reflect.Slice:
		for i := range v.Len() {
			spoil(r, v.Index(i), rarely)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			key, e := reflect.New(k.Type()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.Set(k)
			e.Set(v.MapIndex(k))
			v.SetMapIndex(k, reflect.Value{})
			spoil(r, key, rarely)
			spoil(r, e, rarely)
			v.SetMapIndex(key, e)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				spoil(r, v.Field(i), rarely)
			}
		}
	default:
	}
}

type protobuf interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// carried checks J4 on one object that has been normalized.
func carried(t *testing.T, obj protobuf) {
	t.Helper()
	text, err := typedjson.Marshal(obj)
	if err != nil {
		t.Fatalf("%T has no JSON: %v\n%+v", obj, err, obj)
	}
	bytesOf, err := obj.Marshal()
	if err != nil {
		t.Fatalf("%T has no protobuf: %v\n%+v", obj, err, obj)
	}
	again := func() protobuf { return reflect.New(reflect.TypeOf(obj).Elem()).Interface().(protobuf) }
	fromText, fromBytes := again(), again()
	if !typedjson.Unmarshal(text, fromText) {
		t.Fatalf("%T: its JSON is not read: %s", obj, text)
	}
	if err := fromBytes.Unmarshal(bytesOf); err != nil {
		t.Fatalf("%T: its protobuf is not read: %v", obj, err)
	}
	for name, back := range map[string]protobuf{"JSON": fromText, "protobuf": fromBytes} {
		if err := typedjson.Normalize(back); err != nil {
			t.Fatalf("%T from %s: %v", obj, name, err)
		}
		gotText, err := typedjson.Marshal(back)
		if err != nil || !bytes.Equal(gotText, text) {
			t.Fatalf("%T from %s has the JSON (%v)\n%s, want\n%s", obj, name, err, gotText, text)
		}
		gotBytes, err := back.Marshal()
		if err != nil || !bytes.Equal(gotBytes, bytesOf) {
			t.Fatalf("%T from %s has the protobuf (%v)\n%q, want\n%q\nof %s", obj, name, err, gotBytes, bytesOf, text)
		}
	}
}

func TestNormalizedObjectsSurviveEncodings(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, kind := range kinds() {
		if _, ok := kind.(*odd); ok || reflect.TypeOf(kind) == reflect.TypeFor[*metav1.Table]() {
			continue // they have values of any type
		}
		taken, refused := 0, 0
		for n := range 60 {
			obj := reflect.New(reflect.TypeOf(kind).Elem())
			fill(r, obj.Elem(), 0)
			spoil(r, obj.Elem(), 1+2*n)
			var fault *typedjson.ValueError
			switch err := typedjson.Normalize(obj.Interface()); {
			case err == nil:
				taken++
				carried(t, obj.Interface().(protobuf))
			case !errors.As(err, &fault) || fault.Field == "" || strings.Contains(fault.Message, "cannot be normalized"):
				t.Fatalf("Normalize(%T) = %v, want a fault of a field", kind, err)
			default:
				refused++
			}
		}
		t.Logf("%T: %d taken, %d refused", kind, taken, refused)
		if taken == 0 {
			t.Errorf("no %T was taken", kind)
		}
	}
}

func TestNormalizeRefuses(t *testing.T) {
	probe := func(port intstr.IntOrString) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}, {ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: port}},
		}}}}}
	}
	tests := []struct {
		name string
		obj  any
		want string
	}{
		{"a type of port", probe(intstr.IntOrString{Type: 7}), "spec.containers[1].readinessProbe.httpGet.port: must be an integer (type 0) or a string (type 1), got type 7"},
		{"a name of a port", probe(intstr.FromString("\xff")), `spec.containers[1].readinessProbe.httpGet.port: must be UTF-8, got "\xff"`},
		{"a name", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a\xc3"}}, `metadata.name: must be UTF-8, got "a\xc3"`},
		{"a label", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "\x80"}}}, `metadata.labels[a]: must be UTF-8, got "\x80"`},
		{"a key", &corev1.ConfigMap{BinaryData: map[string][]byte{"\x80": nil}}, `binaryData.key: must be UTF-8, got "\x80"`},
		{"a year", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(253402300800, 0)}}, "metadata.creationTimestamp: must be a time in the years 0 to 9999, got 253402300800 seconds since 1970"},
		{"fields", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1("{")}}}}, `metadata.managedFields[0].fieldsV1: must be JSON, got "{"`},
		{"an extension", &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte("\xd9\xd9\xf7\xa0")}}, `data: must be JSON in UTF-8, got "\xd9\xd9\xf7\xa0"`},
		{
			"an extension with a number that is too large", &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(`{"a":1e400}`)}},
			"data: must be JSON whose numbers fit into 64 bits: json: cannot unmarshal number 1e400 into Go value of type float64",
		},
		{"an extension with an object", &appsv1.ControllerRevision{Data: runtime.RawExtension{Object: &corev1.Pod{}}}, "data: must be JSON, got a *v1.Pod"},
		{"no pointer", corev1.Pod{}, "typedjson: cannot normalize a v1.Pod"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := typedjson.Normalize(tt.obj); err == nil || err.Error() != tt.want {
				t.Errorf("Normalize = %v, want %s", err, tt.want)
			}
		})
	}
}

// TestNormalizeWritesOnlyWhatDiffers normalizes an object that is being read; the race
// detector sees a write.
func TestNormalizeWritesOnlyWhatDiffers(t *testing.T) {
	pod := samplePod()
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(`{"f:a":{}}`)}}
	pod.CreationTimestamp = metav1.Unix(1_700_000_000, 0)
	config := &corev1.ConfigMap{Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"a": {}}}
	g := run.NewGroup(t.Context(), 0)
	defer g.Stop()
	g.Go(func(context.Context) {
		_, _ = typedjson.Marshal(pod)
		_, _ = typedjson.Marshal(config)
	})
	if err := errors.Join(typedjson.Normalize(pod), typedjson.Normalize(config)); err != nil {
		t.Error(err)
	}
}

func BenchmarkNormalize(b *testing.B) {
	pod := samplePod()
	for b.Loop() {
		if err := typedjson.Normalize(pod); err != nil {
			b.Fatal(err)
		}
	}
}
