package codec_test

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/codec"
)

// A schema that is nested a hundred thousand levels deep would overflow the stack of the goroutine that converts it, which
// ends the process.
func TestNestedSchemasInProtobufAreRefused(t *testing.T) {
	definitions := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	decode := func(levels int) error {
		var inner []byte
		for range levels {
			inner = message(28, inner) // not
		}
		spec := message(7, message(4, message(1, inner))) // versions, schema, openAPIV3Schema
		envelope := runtime.Unknown{
			TypeMeta: runtime.TypeMeta{APIVersion: definitions.GroupVersion().String(), Kind: definitions.Kind}, Raw: message(2, spec),
		}
		body, err := envelope.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		_, err = codec.Decode(t.Context(), codec.Protobuf, append([]byte("k8s\x00"), body...), &apiextensionsv1.CustomResourceDefinition{}, definitions, codec.Warn)
		return err
	}
	if err := decode(100); err != nil {
		t.Errorf("100 levels: %v", err)
	}
	for _, levels := range []int{1000, 20_000} {
		if err := decode(levels); err == nil || !strings.Contains(err.Error(), "nested more than") {
			t.Errorf("%d levels: %v, want that they are too many", levels, err)
		}
	}
}

func message(field protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), content)
}

// The time for managed fields grows with the square of the depth, and a record near the limit of the JSON decoder would not be
// read any more.
func TestNestedCustomResourcesAreRefused(t *testing.T) {
	widgets := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	body := func(levels int) []byte {
		var b bytes.Buffer
		b.WriteString(`{"metadata":{"name":"a"},"spec":`)
		b.WriteString(strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels) + "}")
		return b.Bytes()
	}
	if _, err := codec.Decode(t.Context(), codec.JSON, body(400), &unstructured.Unstructured{}, widgets, codec.Warn); err != nil {
		t.Errorf("400 levels: %v", err)
	}
	if _, err := codec.Decode(t.Context(), codec.JSON, body(600), &unstructured.Unstructured{}, widgets, codec.Warn); err == nil || !strings.Contains(err.Error(), "nested more than 500 levels deep") {
		t.Errorf("600 levels: %v", err)
	}
	if _, _, err := codec.DecodeConfiguration(t.Context(), body(600), codec.Warn); err == nil || !strings.Contains(err.Error(), "nested more than 500 levels deep") {
		t.Errorf("apply of 600 levels: %v", err)
	}
}
