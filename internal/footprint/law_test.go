package footprint_test

import (
	"math/rand/v2"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/randfill"

	"github.com/sampan-io/sampan/internal/footprint"
)

// TestOfCountsEachValue compares the result with a plain walk by package reflect.
func TestOfCountsEachValue(t *testing.T) {
	quantity := func(q *resource.Quantity, c randfill.Continue) {
		*q = *resource.NewQuantity(c.Int63(), resource.BinarySI)
	}
	decimal := resource.MustParse("0.0000000000000000000001") // has a pointer
	fill := randfill.NewWithSeed(1).NilChance(0.3).NumElements(0, 4).MaxDepth(12).Funcs(quantity)
	seed := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		for _, v := range []any{&corev1.Pod{}, &corev1.Node{}, &appsv1.StatefulSet{}, &apiextensionsv1.CustomResourceDefinition{}} {
			fill.Fill(v)
			same(t, v)
		}
		same(t, &unstructured.Unstructured{Object: free(seed, 0).(map[string]any)})
	}
	type word string
	for _, v := range []any{
		corev1.ResourceList{"cpu": decimal, "memory": decimal},
		map[word][]*word{"a": {nil, new(word("b"))}},
		map[string]string(nil),
		map[string]string{},
		map[int]bool{1: true},
		[2]*int{nil, new(int)},
		[0]*int{},
		struct{ E error }{},
		[]error{nil, deep{"abc"}},
		[]any{[]any{}, map[string]any(nil), int32(1), deep{"ab"}},
	} {
		same(t, v)
	}
}

type deep struct{ text string }

func (d deep) Error() string { return d.text }

func same(t *testing.T, v any) {
	t.Helper()
	if got, want := footprint.Of(v), plain(reflect.ValueOf(v))+int(reflect.TypeOf(v).Size()); got != want {
		t.Fatalf("%T: %d bytes, want %d: %+v", v, got, want, v)
	}
}

func free(r *rand.Rand, depth int) any {
	values := []any{"text", int64(1), 1.5, true, nil}
	if depth > 3 {
		return values[r.IntN(len(values))]
	}
	m := map[string]any{}
	for _, k := range []string{"a", "bc", "def"}[:r.IntN(4)] {
		m[k] = []any{free(r, depth+1), values[r.IntN(len(values))]}
	}
	return m
}

// plain returns how many bytes v points to.
func plain(v reflect.Value) int {
	total := 0
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice {
			total = v.Cap() * int(v.Type().Elem().Size())
		}
		for i := range v.Len() {
			total += plain(v.Index(i))
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			total = int(v.Elem().Type().Size()) + plain(v.Elem())
		}
	case reflect.Map:
		if v.IsNil() {
			return 0
		}
		total = 48 + v.Len()*(2*int(v.Type().Key().Size()+v.Type().Elem().Size())+16)
		for each := v.MapRange(); each.Next(); {
			total += plain(each.Key()) + plain(each.Value())
		}
	case reflect.Struct:
		if v.Type().PkgPath() == "time" {
			return 0
		}
		for i := range v.NumField() {
			total += plain(v.Field(i))
		}
	}
	return total
}
