package codec_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/internal/hangtest"
)

// quantityPods are bodies that make the reader of quantities look at each token, and then are not JSON.
var quantityPods = []string{
	`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"1e9999"},"spec":{"containers":[x`,
	`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a66e6758"},"spec":{"containers":[`,
	`{"kind":"Pod","metadata":{"name":"1e9999"},"spec":{"containers":[{"resources":{"limits":{"cpu":x`,
	`{"metadata":{"name":"1e9999"},"spec":{"containers":x`,
	`{"metadata":{"name":"1e9999"},"spec":{"containers":[}`,
	`{"metadata":{"name":"1e9999"},"spec":{"overhead":{1`,
	`{"metadata":{"name":"1e9999"},"spec":{"overhead":{"a" 1`,
	`{"metadata":{"name":"1e9999"},"spec":{"overhead":{"a":1]}`,
	`{"metadata":{"name":"1e9999","labels":{"a":[1,{"b":x`,
	`["1e9999",x`,
	`{"1e9999"`,
	`"1e9999`,
}

// Malformed JSON of a kind with quantities made the reader of these loop for ever.
func TestMalformedBodiesEnd(t *testing.T) {
	for _, text := range quantityPods {
		func() {
			defer hangtest.Guard(t)()
			if _, err := codec.Decode(t.Context(), codec.JSON, []byte(text), &corev1.Pod{}, corev1.SchemeGroupVersion.WithKind("Pod"), codec.Warn); err == nil {
				t.Errorf("%s was decoded", text)
			}
		}()
	}
}

// A long key was copied into the path of each value below it.
func TestPathsOfQuantitiesCostNothing(t *testing.T) {
	body := func(key, items int) []byte {
		return []byte(`{"metadata":{"name":"1e9999"},"spec":{"overhead":{"` + strings.Repeat("k", key) + `":[` + strings.Repeat(`[],`, items-1) + `[]]}}}`)
	}
	decode := func(b []byte) {
		_, _ = codec.Decode(t.Context(), codec.JSON, b, &corev1.Pod{}, corev1.SchemeGroupVersion.WithKind("Pod"), codec.Ignore)
	}
	bytes := func(key int) uint64 {
		b := body(key, 2000)
		r := testing.Benchmark(func(b2 *testing.B) {
			for b2.Loop() {
				decode(b)
			}
		})
		return uint64(r.AllocedBytesPerOp())
	}
	if short, long := bytes(1000), bytes(100_000); long > 4*short+10*100_000 {
		t.Errorf("a body with a key of 1,000 bytes takes %d bytes of memory, of 100,000 bytes %d", short, long)
	}
}

// A request that has ended does not decode its body.
func TestDecodingEndsWithItsRequest(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client has gone")
	cancel(gone)
	large := `{"metadata":{"name":"1e9999"},"spec":{"overhead":{"a":[` + strings.Repeat(`1,`, 10_000) + `1]}}}`
	for name, err := range map[string]error{
		"JSON":         second(codec.Decode(ctx, codec.JSON, []byte(large), &corev1.Pod{}, corev1.SchemeGroupVersion.WithKind("Pod"), codec.Warn)),
		"YAML":         second(codec.Decode(ctx, codec.YAML, []byte(large), &corev1.Pod{}, corev1.SchemeGroupVersion.WithKind("Pod"), codec.Warn)),
		"no type":      second(codec.Decode(ctx, codec.JSON, []byte(large), &unstructured.Unstructured{}, schema.GroupVersionKind{Version: "v1", Kind: "X"}, codec.Warn)),
		"to delete":    codec.DecodeDeleteOptions(ctx, codec.YAML, []byte(large), &metav1.DeleteOptions{}),
		"to apply":     third(codec.DecodeConfiguration(ctx, []byte(large), codec.Warn)),
		"YAML applied": third(codec.DecodeConfiguration(ctx, []byte("a: 1"), codec.Warn)),
	} {
		if !errors.Is(err, gone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error        { return err }
func third[T, U any](_ T, _ U, err error) error { return err }

// FuzzDecode decodes bodies of typical kinds in each encoding. What is decoded is encoded, and decoded once more.
func FuzzDecode(f *testing.F) {
	for i, text := range append(quantityPods, `{"metadata":{"name":"a"},"spec":{"overhead":{"cpu":"1e2"}}}`, "metadata: {name: a}\nspec: {overhead: {cpu: 1}}", "a: &a [*a]", `{"spec":null}`) {
		f.Add([]byte(text), uint8(i))
	}
	for i, obj := range []interface{ Marshal() ([]byte, error) }{&corev1.Pod{}, &apiextensionsv1.CustomResourceDefinition{}} {
		raw, err := obj.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		envelope, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: raw}).Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append([]byte("k8s\x00"), envelope...), uint8(4*i+2))
	}
	kinds := []struct {
		gvk schema.GroupVersionKind
		new func() runtime.Object
	}{
		{corev1.SchemeGroupVersion.WithKind("Pod"), func() runtime.Object { return &corev1.Pod{} }},
		{apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), func() runtime.Object { return &apiextensionsv1.CustomResourceDefinition{} }},
		{schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, func() runtime.Object { return &unstructured.Unstructured{} }},
		{corev1.SchemeGroupVersion.WithKind("ResourceQuota"), func() runtime.Object { return &corev1.ResourceQuota{} }},
	}
	f.Fuzz(func(t *testing.T, body []byte, choice uint8) {
		defer hangtest.Guard(t)()
		kind := kinds[int(choice/4)%len(kinds)]
		e := []codec.Encoding{codec.JSON, codec.YAML, codec.Protobuf}[int(choice)%3]
		v := []codec.Validation{codec.Warn, codec.Strict, codec.Ignore}[int(choice/16)%3]
		_ = codec.DecodeDeleteOptions(t.Context(), e, body, &metav1.DeleteOptions{})
		if fields, _, err := codec.DecodeConfiguration(t.Context(), body, v); err == nil {
			_ = codec.CheckQuantities(fields, kind.new())
		}
		obj := kind.new()
		if _, err := codec.Decode(t.Context(), e, body, obj, kind.gvk, v); err != nil {
			return
		}
		text, err := json.Marshal(obj)
		if err != nil {
			t.Fatalf("what was decoded cannot be encoded: %v", err)
		}
		if _, err := codec.Decode(t.Context(), codec.JSON, text, kind.new(), kind.gvk, codec.Strict); err != nil {
			t.Fatalf("what was encoded cannot be decoded: %v\n%s", err, text)
		}
	})
}
