package custom_test

import (
	"context"
	"fmt"
	"slices"
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
	if _, err := k.Coerce(obj, catalog.Coercion{Stored: true}); err != nil {
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
			if _, err := k.Coerce(obj.DeepCopy(), catalog.Coercion{Strict: true}); err != nil && !strings.HasPrefix(at, "metadata") {
				t.Errorf("%s = %s: %v", at, odd, err)
			}
			_, _ = k.Coerce(obj, catalog.Coercion{Stored: true})
			use(t.Context(), k, obj, good)
			use(t.Context(), k, good.DeepCopy(), obj)
			use(t.Context(), k, obj, nil)
		}
	}
}

// use calls all functions of a kind.
func use(ctx context.Context, k *catalog.Kind, obj, old *unstructured.Unstructured) {
	k.Default(obj)
	if old == nil {
		k.Prepare(obj, nil)
		k.Validate(ctx, obj, nil)
		k.Warn(obj, nil)
	} else {
		k.Prepare(obj, old)
		k.Validate(ctx, obj, old)
		k.Warn(obj, old)
		for _, s := range k.Subresources {
			switch shape := s.Shape.(type) {
			case catalog.Part:
				changed := obj.DeepCopy()
				shape.Prepare(changed, old)
				shape.Validate(ctx, changed, old)
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
				if errs := k.Validate(t.Context(), obj, nil); (len(errs) > 0) != (j%2 == 0) {
					t.Errorf("%d: %v", j, errs)
				}
			})
		}
		group.Wait()
	}
}

// TestTooManyFaultsAreNotExplained checks objects for which Kubernetes' validator, which compares each error with all
// others, would take minutes and gigabytes.
func TestTooManyFaultsAreNotExplained(t *testing.T) {
	names := strings.TrimSuffix(strings.Repeat("name, ", 2_000), ", ")
	k := kindOf(t, boats(t, `{type: object, properties: {
		keyed: {type: array, items: {type: object, required: [a], properties: {a: {type: string}}}},
		named: {type: array, items: {type: string, enum: [`+names+`, last]}},
		chosen: {type: array, items: {type: string, anyOf: [{maxLength: 1}, {enum: [`+names+`, last]}]}},
		numbers: {type: array, items: {type: integer, minimum: 1, maximum: 5}},
		texts: {type: array, items: {type: string, minLength: 2, maxLength: 3, pattern: "^a"}},
		flags: {type: array, items: {type: boolean}},
		lists: {type: array, items: {type: array, maxItems: 1, items: {type: integer}}},
		maps: {type: array, items: {type: object, minProperties: 1, maxProperties: 1, additionalProperties: {type: string}}},
		addresses: {type: array, items: {type: string, format: ipv4}},
		either: {type: array, items: {type: object, properties: {a: {type: string}, b: {type: string}}, oneOf: [{required: [a]}, {required: [b]}]}},
		joined: {type: array, items: {type: integer}, anyOf: [{items: {minimum: 5}}, {items: {maximum: 3}}]},
		by: {type: object, additionalProperties: {type: array, items: {type: integer}}}}}`))
	list := func(n int, item any, more ...any) any {
		return append(slices.Repeat([]any{item}, n), more...)
	}
	spec := func(field string, value any) map[string]any { return map[string]any{field: value} }
	none, one := map[string]any{}, map[string]any{"a": "x"}
	const many = 50_000
	const tooMany = "Invalid value: more than 200 values do not fit the schema; "
	isOne := func(at string) string { return "spec." + at + ": " + tooMany + "this is one of them" }
	for name, c := range map[string]struct {
		spec, old map[string]any
		errs      int
		want      string
	}{
		"keys":                  {spec("keyed", list(many, none)), nil, 1, isOne("keyed[0].a")},
		"keys of an update":     {spec("keyed", list(many, none)), spec("keyed", list(many, one)), 1, isOne("keyed[0].a")},
		"keys beside old fault": {spec("keyed", list(1, none, list(many, int64(1)).([]any)...)), spec("keyed", list(1, none)), 1, isOne("keyed[1]")},
		"names":                 {spec("named", list(many, "x")), nil, 1, isOne("named[0]")},
		"one name":              {spec("named", list(many, "last", "x")), nil, 1, `spec.named[50000]: Unsupported value: "x"`},
		"one choice":            {spec("chosen", list(many, "last", "xx")), nil, 2, `spec.chosen[50000]: Too long: may not be more than 1 byte`},
		"types":                 {spec("keyed", list(many, int64(1))), nil, 1, isOne("keyed[0]")},
		"null":                  {spec("keyed", list(many, nil)), nil, 1, isOne("keyed[0]")},
		"fractions as texts":    {spec("texts", list(many, 1.5)), nil, 1, isOne("texts[0]")},
		"fractions as numbers":  {spec("numbers", list(many, 1.5)), nil, 1, isOne("numbers[0]")},
		"fractions as flags":    {spec("flags", list(many, 1.5)), nil, 1, isOne("flags[0]")},
		"fractions as lists":    {spec("lists", list(many, 1.5)), nil, 1, isOne("lists[0]")},
		"fractions as maps":     {spec("maps", list(many, 1.5)), nil, 1, isOne("maps[0]")},
		"small numbers":         {spec("numbers", list(many, int64(0))), nil, 1, isOne("numbers[0]")},
		"large numbers":         {spec("numbers", list(many, int64(6))), nil, 1, isOne("numbers[0]")},
		"short texts":           {spec("texts", list(many, "a")), nil, 1, isOne("texts[0]")},
		"long texts":            {spec("texts", list(many, "aaaa")), nil, 1, isOne("texts[0]")},
		"patterns":              {spec("texts", list(many, "bbb")), nil, 1, isOne("texts[0]")},
		"long lists":            {spec("lists", list(many, list(2, int64(1)))), nil, 1, isOne("lists[0]")},
		"small maps":            {spec("maps", list(many, none)), nil, 1, isOne("maps[0]")},
		"large maps":            {spec("maps", list(many, map[string]any{"a": "x", "b": "x"})), nil, 1, isOne("maps[0]")},
		"formats":               {spec("addresses", list(many, "x")), nil, 1, isOne("addresses[0]")},
		"alternatives":          {spec("either", list(many, none)), nil, 1, isOne("either[0].a")},
		"both alternatives":     {spec("either", list(many, map[string]any{"a": "x", "b": "x"})), nil, 1, tooMany + `one of them: "spec.either[0]" must validate one and only one schema (oneOf). Found 2 valid alternatives`},
		"one joined list":       {spec("joined", list(many, int64(1))), nil, 0, ""},
		"no joined list":        {spec("joined", list(many, int64(4))), nil, 1, isOne("joined[0]")},
		"long paths":            {spec("by", map[string]any{strings.Repeat("k", 1_000_000): list(many, int64(1), "x")}), nil, 1, "…[50000]: Invalid value"},
		"few":                   {spec("keyed", list(3, none)), nil, 3, "spec.keyed[2].a: Required value"},
		"as many as explained":  {spec("keyed", list(200, none)), nil, 200, "spec.keyed[199].a: Required value"},
		"one more":              {spec("keyed", list(201, none)), nil, 1, isOne("keyed[0].a")},
		"old ones":              {spec("keyed", list(many, none)), spec("keyed", list(many, none)), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			obj, old := object(t, `{}`), (*unstructured.Unstructured)(nil)
			obj.Object["spec"] = c.spec
			if c.old != nil {
				old = object(t, `{}`)
				old.Object["spec"] = c.old
			}
			errs := write(t, k, obj, old)
			for len(errs) > 0 && strings.Contains(errs[len(errs)-1].Error(), "some validation rules were not checked") {
				errs = errs[:len(errs)-1]
			}
			if len(errs) != c.errs || !strings.Contains(fmt.Sprint(errs), c.want) {
				t.Errorf("%d errors: %.300v", len(errs), errs)
			}
		})
	}
}

func TestTooManyFaultsOfAStatusAreNotExplained(t *testing.T) {
	d := boats(t, `{type: object}`)
	d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"] = apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"l": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "integer", Format: "int32"}}},
		},
	}
	k := kindOf(t, d)
	status := k.Subresource("status").Shape.(catalog.Part)
	for value, want := range map[any]string{
		"x":            "status.l[0]: Invalid value: more than 200 values do not fit the schema; this is one of them",
		int64(1) << 40: "status: Invalid value: more than 200 values do not fit the schema; one of them: Checked value must be of type integer with format int32 in l[0]",
	} {
		old, obj := object(t, `{}`), object(t, `{}`)
		obj.Object["status"] = map[string]any{"l": slices.Repeat([]any{value}, 50_000)}
		status.Prepare(obj, old)
		if errs := status.Validate(t.Context(), obj, old); len(errs) != 1 || errs[0].Error() != want {
			t.Errorf("%v: %.300v", value, errs)
		}
	}
}

// TestRulesEndWithTheirRequest evaluates a rule for a client that has gone: it is not evaluated to the end.
func TestRulesEndWithTheirRequest(t *testing.T) {
	k := kindOf(t, boats(t, `{type: object, properties: {l: {type: array, maxItems: 300, items: {type: string, maxLength: 10}, x-kubernetes-validations: [{rule: "self.all(a, self.all(b, a == b))"}]}}}`))
	items := make([]any, 300)
	for i := range items {
		items[i] = "a"
	}
	obj := object(t, `{}`)
	obj.Object["spec"] = map[string]any{"l": items}
	ctx, cancel := context.WithCancel(t.Context())
	if errs := k.Validate(ctx, obj, nil); len(errs) > 0 {
		t.Fatal(errs)
	}
	cancel()
	if errs := k.Validate(ctx, obj, nil); len(errs) != 1 || !strings.Contains(errs[0].Error(), "interrupted") {
		t.Errorf("after the client has gone: %v", errs)
	}
}
