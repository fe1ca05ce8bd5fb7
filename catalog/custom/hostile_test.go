package custom_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/custom"
)

// TestDefaultsAreBounded checks lists of defaults in lists of defaults, which would make 10^8 objects.
func TestDefaultsAreBounded(t *testing.T) {
	list := "[" + strings.TrimSuffix(strings.Repeat("{},", 100), ",") + "]"
	schema := `{type: string, default: x}`
	for range 4 {
		schema = `{type: array, default: ` + list + `, items: {type: object, properties: {a: ` + schema + `}}}`
	}
	k := kindOf(t, boats(t, `{type: object, properties: {a: `+schema+`}}`))
	obj := object(t, `{spec: {}}`)
	errs := write(t, k, obj, nil)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "its defaults take more than 3145728 bytes") {
		t.Errorf("%.300v", errs)
	}
	k.Default(obj) // once more, as after admission
	if _, err := k.Coerce(obj, false, true); err != nil {
		t.Error(err)
	}

	k = kindOf(t, boats(t, `{type: object, properties: {l: {type: array, items: {type: object, properties: {a: {type: string, default: `+strings.Repeat("x", 1000)+`}}}}}}`))
	many := object(t, `{}`)
	items := make([]any, 100_000)
	for i := range items {
		items[i] = map[string]any{}
	}
	many.Object["spec"] = map[string]any{"l": items}
	if errs := write(t, k, many, nil); len(errs) != 1 || !strings.Contains(errs[0].Error(), "its defaults take more than") {
		t.Errorf("%.300v", errs)
	}
}

func TestDeepObjectsAreHandled(t *testing.T) {
	k := kindOf(t, boats(t, `{type: object, x-kubernetes-preserve-unknown-fields: true}`))
	var deep any = "x"
	for range 9_000 {
		deep = map[string]any{"a": []any{deep}}
	}
	obj := object(t, `{}`)
	obj.Object["spec"] = map[string]any{"deep": deep}
	if errs := write(t, k, obj, nil); len(errs) > 0 {
		t.Error(errs)
	}
	if errs := write(t, k, obj.DeepCopy(), obj); len(errs) > 0 {
		t.Error(errs)
	}
}

func TestCostlyObjectsAreRefused(t *testing.T) {
	k := kindOf(t, boats(t, `{type: object, properties: {l: {type: array, maxItems: 700, items: {type: string, maxLength: 10, x-kubernetes-validations: [{rule: "self.matches('^[a-z]*$')"}]}, x-kubernetes-validations: [{rule: "self.all(a, self.all(b, a == b))"}]}}}`))
	items := make([]any, 700)
	for i := range items {
		items[i] = "aaaaaaaaaa"
	}
	obj := object(t, `{}`)
	obj.Object["spec"] = map[string]any{"l": items}
	errs := write(t, k, obj, nil)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "no further validation rules will be run due to call cost exceeds limit for rule: self.all(a, self.all(b, a == b))") {
		t.Errorf("%.500v", errs)
	}
}

// TestOddObjectsCauseNoPanic tries values of each type at each place.
func TestOddObjectsCauseNoPanic(t *testing.T) {
	d := boats(t, twenty())
	v := &d.Spec.Versions[0]
	v.Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.n0", StatusReplicasPath: ".status.a.b", LabelSelectorPath: new(".status.c")}
	v.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.f0"}}
	v.AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{Name: "A", Type: "string", JSONPath: ".spec.ports[*].port"}, {Name: "B", Type: "date", JSONPath: ".metadata.x"}, {Name: "C", Type: "integer", JSONPath: "."}}
	k := kindOf(t, d)
	good := object(t, ship)
	write(t, k, good, nil)
	for _, odd := range []string{`null`, `1`, `-1`, `1.5`, `true`, `"x"`, `[]`, `[1, null, {}]`, `{}`, `{a: null}`, `9223372036854775807`} {
		for _, at := range []string{"spec", "status", "spec.f0", "spec.n0", "spec.tags", "spec.labels", "spec.ports", "status.a", "status.c", "metadata.labels", "metadata.finalizers", "metadata.generation", "metadata"} {
			obj := good.DeepCopy()
			value := object(t, `{x: `+odd+`}`).Object["x"]
			if err := unstructured.SetNestedField(obj.Object, value, strings.Split(at, ".")...); err != nil {
				continue
			}
			if _, err := k.Coerce(obj.DeepCopy(), true, false); err != nil && !strings.HasPrefix(at, "metadata") {
				t.Errorf("%s = %s: %v", at, odd, err)
			}
			_, _ = k.Coerce(obj, false, true)
			use(k, obj, good)
			use(k, good.DeepCopy(), obj)
			use(k, obj, nil)
		}
	}
}

// use calls all functions of a kind.
func use(k *catalog.Kind, obj, old *unstructured.Unstructured) {
	k.Default(obj)
	if old == nil {
		k.Prepare(obj, nil)
		k.Validate(obj, nil)
		k.Warn(obj, nil)
	} else {
		k.Prepare(obj, old)
		k.Validate(obj, old)
		k.Warn(obj, old)
		for _, s := range k.Subresources {
			switch shape := s.Shape.(type) {
			case catalog.Part:
				changed := obj.DeepCopy()
				shape.Prepare(changed, old)
				shape.Validate(changed, old)
			case catalog.View:
				if shape.Absent(obj) == nil {
					_ = shape.Apply(obj.DeepCopy(), shape.Get(obj))
				}
				shape.Get(obj)
			}
		}
	}
	for _, c := range k.Columns {
		c.Cell(obj, obj.GetCreationTimestamp().Time)
	}
	for _, value := range k.Fields {
		value(obj)
	}
}

func TestOddDefinitionsAreErrors(t *testing.T) {
	for name, change := range map[string]func(d *apiextensionsv1.CustomResourceDefinition){
		"no versions": func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions = nil },
		"field path": func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Versions[0].SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".a[?("}}
		},
	} {
		d := boats(t, `{type: object}`)
		change(d)
		if _, err := custom.Kind(d, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	d := boats(t, `{type: object}`)
	d.Spec.Versions[0].Schema = nil
	k := kindOf(t, d)
	obj := object(t, `{spec: {a: 1}}`)
	if errs := write(t, k, obj, nil); len(errs) > 0 {
		t.Error(errs)
	}
}

// TestKindsAreSafeForConcurrentUse finds races while a schema is made.
func TestKindsAreSafeForConcurrentUse(t *testing.T) {
	for i := range 3 {
		k := kindOf(t, boats(t, twenty()))
		var group sync.WaitGroup
		for j := range 8 {
			group.Go(func() {
				obj := object(t, ship)
				obj.SetName(fmt.Sprint("b", i, j))
				if j%2 == 0 {
					obj.Object["spec"].(map[string]any)["n0"] = int64(5)
				}
				k.Default(obj)
				if errs := k.Validate(obj, nil); (len(errs) > 0) != (j%2 == 0) {
					t.Errorf("%d: %v", j, errs)
				}
			})
		}
		group.Wait()
	}
}

// Kubernetes' validator compares each error with all others: these would take minutes, and gigabytes.
func TestCrowdsOfFaultsAreNotExplained(t *testing.T) {
	names := strings.TrimSuffix(strings.Repeat("name, ", 20_000), ", ")
	k := kindOf(t, boats(t, `{type: object, properties: {
		keyed: {type: array, items: {type: object, required: [a], properties: {a: {type: string}}}},
		named: {type: array, items: {type: string, enum: [`+names+`]}}}}`))
	boat := func(n int, item any, field string) *unstructured.Unstructured {
		items := make([]any, n)
		for i := range items {
			items[i] = item
		}
		obj := object(t, `{}`)
		obj.Object["spec"] = map[string]any{field: items}
		return obj
	}
	none, one := map[string]any{}, map[string]any{"a": "x"}
	for name, c := range map[string]struct {
		obj, old *unstructured.Unstructured
		errs     int
		want     string
	}{
		"keys":                       {boat(80_000, none, "keyed"), nil, 1, "spec.keyed[0]: Invalid value: it does not fit the schema, nor do more than 200 other values"},
		"keys of an update":          {boat(80_000, none, "keyed"), boat(80_000, one, "keyed"), 1, "spec.keyed[0]: Invalid value: it does not"},
		"names":                      {boat(10_000, "x", "named"), nil, 1, "spec.named[0]: Invalid value: it does not"},
		"types":                      {boat(80_000, int64(1), "keyed"), nil, 1, "spec.keyed[0]: Invalid value: it does not"},
		"few":                        {boat(3, none, "keyed"), nil, 3, "spec.keyed[2].a: Required value"},
		"what was wrong may stay so": {boat(1000, none, "keyed"), boat(1000, none, "keyed"), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			errs := write(t, k, c.obj, c.old)
			for len(errs) > 0 && strings.Contains(errs[len(errs)-1].Error(), "some validation rules were not checked") {
				errs = errs[:len(errs)-1]
			}
			if len(errs) != c.errs || !strings.Contains(fmt.Sprint(errs), c.want) {
				t.Errorf("%d errors: %.300v", len(errs), errs)
			}
		})
	}
}
