package custom_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sampan-io/sampan/catalog"
)

// twenty is a schema of 20 fields with three rules.
func twenty() string {
	var b strings.Builder
	b.WriteString("\n            type: object\n            required: [f0, n0]\n            properties:\n")
	for i := range 8 {
		fmt.Fprintf(&b, "              f%d: {type: string, maxLength: 63, pattern: \"^[a-z0-9-]*$\"}\n", i)
	}
	for i := range 8 {
		fmt.Fprintf(&b, "              n%d: {type: integer, minimum: 0, maximum: 1000, default: %d}\n", i, i)
	}
	b.WriteString(`              tags: {type: array, maxItems: 10, x-kubernetes-list-type: set, items: {type: string, maxLength: 20}}
              labels: {type: object, maxProperties: 10, additionalProperties: {type: string, maxLength: 63}}
              ports: {type: array, maxItems: 10, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [port], items: {type: object, required: [port], properties: {port: {type: integer}, name: {type: string, maxLength: 15}}}}
              on: {type: boolean}
            x-kubernetes-validations:
            - {rule: "self.n0 <= self.n1"}
            - {rule: "!has(self.tags) || self.tags.all(t, t.startsWith('a'))"}
            - {rule: "!has(self.ports) || self.ports.all(p, p.port > 0)"}
`)
	return b.String()
}

const ship = `{metadata: {name: b, namespace: default, labels: {a: b}}, spec: {f0: a, f1: b, f2: c, f3: d, f4: e, f5: f, n0: 1, n1: 2, n2: 3, n3: 4,
  tags: [a, ab, abc], labels: {a: b, c: d}, ports: [{port: 1, name: http}, {port: 2, name: https}], on: true}}`

// BenchmarkCreate measures what a kind does in the creation of an object.
func BenchmarkCreate(b *testing.B) {
	k := kindOf(b, boats(b, twenty()))
	obj := object(b, ship)
	if errs := write(b, k, obj.DeepCopy(), nil); len(errs) > 0 {
		b.Fatal(errs)
	}
	b.ReportAllocs()
	for b.Loop() {
		write(b, k, obj.DeepCopy(), nil)
	}
}

// BenchmarkUpdate measures what a kind does in an update of an object.
func BenchmarkUpdate(b *testing.B) {
	k := kindOf(b, boats(b, twenty()))
	old := object(b, ship)
	write(b, k, old, nil)
	obj := old.DeepCopy()
	obj.Object["spec"].(map[string]any)["n7"] = int64(9)
	b.ReportAllocs()
	for b.Loop() {
		write(b, k, obj.DeepCopy(), old)
	}
}

// BenchmarkRead measures what a kind does when a stored object is read.
func BenchmarkRead(b *testing.B) {
	k := kindOf(b, boats(b, twenty()))
	obj := object(b, ship)
	write(b, k, obj, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Coerce(obj, catalog.Coercion{Stored: true}); err != nil {
			b.Fatal(err)
		}
		k.Default(obj)
	}
}

// BenchmarkIdle reports how many bytes a kind takes that is not used, and one that is.
func BenchmarkIdle(b *testing.B) {
	d := boats(b, twenty())
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	const n = 100
	kinds := make([]*catalog.Kind, n)
	for b.Loop() {
		before := heap()
		for i := range kinds {
			kinds[i] = kindOf(b, d)
		}
		unused := heap()
		for _, k := range kinds {
			k.Validate(b.Context(), k.New().(*unstructured.Unstructured), nil)
		}
		used := heap()
		b.ReportMetric((unused-before)/n, "unused-B/kind")
		b.ReportMetric((used-unused)/n, "used-B/kind")
		clear(kinds)
	}
}
