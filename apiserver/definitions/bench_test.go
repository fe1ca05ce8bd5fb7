package definitions_test

import (
	"fmt"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/definitions"
)

// twenty is a definition whose schema has twenty fields.
func twenty(group string) *apiextensionsv1.CustomResourceDefinition {
	fields := map[string]apiextensionsv1.JSONSchemaProps{}
	for n := range 10 {
		fields[fmt.Sprintf("text%d", n)] = apiextensionsv1.JSONSchemaProps{Type: "string", Description: "A text of the spec."}
		fields[fmt.Sprintf("number%d", n)] = apiextensionsv1.JSONSchemaProps{Type: "integer", Default: &apiextensionsv1.JSON{Raw: []byte("1")}}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object", Properties: fields}},
				}},
			}},
		},
	}
}

// BenchmarkEstablish creates definitions, each until it is established. It reports the memory of each.
func BenchmarkEstablish(b *testing.B) {
	s := open(b, nil)
	before := heap()
	b.ResetTimer()
	n := 0
	for b.Loop() {
		s.define(twenty(fmt.Sprintf("g%d.example.com", n)))
		n++
	}
	b.StopTimer()
	b.ReportMetric(float64(heap()-before)/float64(n), "heap-B/op")
	if n >= 1000 {
		for _, path := range []string{"/apis", "/openapi/v3"} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", path, nil)
			r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			if strings.HasPrefix(path, "/openapi") {
				r.Header.Set("Accept", "application/json")
			}
			start := b.Elapsed()
			b.StartTimer()
			s.handler.ServeHTTP(w, r)
			b.StopTimer()
			b.Logf("%d definitions: %s is %d bytes, %v, code %d", n, path, w.Body.Len(), b.Elapsed()-start, w.Code)
		}
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkCreateCustomResource creates objects with twenty fields.
func BenchmarkCreateCustomResource(b *testing.B) {
	s := open(b, nil)
	s.define(twenty("example.com"))
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	spec := map[string]any{}
	for n := range 10 {
		spec[fmt.Sprintf("text%d", n)] = "some text"
		spec[fmt.Sprintf("number%d", n)] = int64(n)
	}
	before := heap()
	n := 0
	for b.Loop() {
		obj := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": fmt.Sprint("w", n)}, "spec": spec,
		}}
		if _, err := s.Create(b.Context(), gvr, "default", "", obj, metav1.CreateOptions{}, ""); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(heap()-before)/float64(n), "heap-B/op")
}

// BenchmarkLoad serves 1,000 definitions, as a server that starts does it.
func BenchmarkLoad(b *testing.B) {
	var defs []*apiextensionsv1.CustomResourceDefinition
	for n := range 1000 {
		d := twenty(fmt.Sprintf("g%d.example.com", n))
		d.Status.AcceptedNames = d.Spec.Names
		d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
		defs = append(defs, d)
	}
	for b.Loop() {
		definitions.New(definitions.Options{Catalog: apiservertest.Kinds(b)}).Load(slices.Values(defs))
	}
}
