package custom

import (
	"context"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// quickSchema has each keyword of schemas somewhere, whether the quick checks know it or not.
const quickSchema = `
type: object
required: [a]
properties:
  a: {type: string, minLength: 1, maxLength: 3, pattern: "^[a-zß]*$"}
  b: {type: integer, minimum: 1, maximum: 5, exclusiveMaximum: true}
  c: {type: number, minimum: 0.5, exclusiveMinimum: true}
  d: {type: string, enum: [x, "", y]}
  e: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
  f: {x-kubernetes-int-or-string: true, maximum: 3}
  g: {type: array, minItems: 1, maxItems: 2, items: {type: string, nullable: true}}
  h: {type: object, minProperties: 1, maxProperties: 2, additionalProperties: {type: integer, format: int32}}
  i: {type: object, x-kubernetes-preserve-unknown-fields: true}
  j: {x-kubernetes-preserve-unknown-fields: true}
  k: {type: integer, enum: [1, 3]}
  l: {type: string, format: date-time}
  m: {type: string, format: ipv4, nullable: true}
  n: {type: integer, multipleOf: 2}
  o: {type: object, properties: {a: {type: boolean}, b: {type: boolean}}, oneOf: [{required: [a]}, {required: [b]}]}
  p: {type: boolean, enum: [true]}
  q:
    type: array
    maxItems: 5
    x-kubernetes-list-type: map
    x-kubernetes-list-map-keys: [a]
    items:
      type: object
      required: [a]
      properties: {a: {type: string, maxLength: 5}, b: {type: integer}}
      x-kubernetes-validations:
      - rule: "!has(self.b) || !has(oldSelf.b) || self.b >= oldSelf.b"
      - rule: "!has(self.b) || self.b < 3"
x-kubernetes-validations:
- rule: "!has(self.b) || self.b != 2"
- rule: "!has(self.k) || !has(oldSelf.k) || self.k == oldSelf.k"
- rule: "!has(self.d) || oldSelf.orValue(self).a == self.a"
  optionalOldSelf: true
- rule: "!has(self.f) || (type(self.f) == int ? self.f > 0 : self.f.startsWith('a'))"
- rule: "!has(self.h) || self.h.all(x, self.h[x] / (self.h[x] - 1) > 0)"
`

func values() *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		return rapid.SampledFrom([]any{
			"a", "ß", "ßßß", "abcd", "", "x", "A", "2026-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "1.2.3.4", int64(0), int64(1), int64(2), int64(3), int64(5), int64(-1), int64(1) << 40, int64(1)<<62 + 1,
			1.0, 0.5, 2.5, true, false, nil,
			[]any{},
			[]any{"a"},
			[]any{"a", nil},
			[]any{int64(1)},
			[]any{"a", "b", "c"},
			map[string]any{},
			map[string]any{"a": int64(1)},
			map[string]any{"a": true},
			map[string]any{"a": true, "b": false},
			map[string]any{"a": "x", "b": int64(1), "c": 1.5},
			[]any{map[string]any{"a": "k", "b": int64(1)}, map[string]any{"a": "l", "b": int64(4)}},
			[]any{map[string]any{"a": "k", "b": int64(2)}},
		}).Draw(t, "value")
	})
}

func objects() *rapid.Generator[map[string]any] {
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r"}
	return rapid.Custom(func(t *rapid.T) map[string]any {
		obj := map[string]any{"a": "a"}
		for range rapid.IntRange(0, 3).Draw(t, "size") {
			obj[rapid.SampledFrom(names).Draw(t, "name")] = runtime.DeepCopyJSONValue(values().Draw(t, "value"))
		}
		return obj
	})
}

// TestQuickChecksAgree compares the quick checks with Kubernetes' validators: whatever they accept, those accept.
func TestQuickChecksAgree(t *testing.T) {
	props := &apiextensionsv1.JSONSchemaProps{}
	if err := yaml.UnmarshalStrict([]byte(quickSchema), props); err != nil {
		t.Fatal(err)
	}
	source, err := newSource(&apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: props})
	if err != nil {
		t.Fatal(err)
	}
	s := source.get()
	e := s.explain()
	rules, ok := s.rules()
	if e.err != nil || !ok || rules == nil {
		t.Fatal(e.err, ok)
	}
	held, ruled, valid := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		obj := objects().Draw(t, "object")
		errs := validation.ValidateCustomResource(nil, obj, validation.NewSchemaValidatorFromOpenAPI(e.schema))
		if s.shape().holds(obj) {
			held++
			if len(errs) > 0 {
				t.Fatalf("the shape accepts %v, Kubernetes does not: %v", obj, errs)
			}
		}
		var old any
		if rapid.Bool().Draw(t, "update") {
			old = objects().Draw(t, "old")
		}
		if len(errs) > 0 {
			return
		}
		valid++
		full, budget := int64(celconfig.RuntimeCELCostBudget), int64(celconfig.RuntimeCELCostBudget)
		faults, left := e.rules.Validate(context.Background(), nil, s.structural, obj, old, full)
		if rules.hold(t.Context(), obj, old, &budget) {
			ruled++
			if len(faults) > 0 || budget != left {
				t.Fatalf("the rules accept %v after %v, Kubernetes does not: %v; %d and %d are left", obj, old, faults, budget, left)
			}
		}
	})
	if held == 0 || ruled == 0 {
		t.Errorf("of %d valid objects the shape accepted %d and the rules %d: the comparison shows nothing", valid, held, ruled)
	}
	t.Logf("%d valid, %d accepted by the shape, %d by the rules", valid, held, ruled)
}

// joinedSchema has lists and maps in joined schemas, with each way to join them.
const joinedSchema = `
type: object
properties:
  a: {type: array, items: {type: integer}, anyOf: [{items: {minimum: 3}}, {items: {maximum: 1}}]}
  b: {type: object, additionalProperties: {type: integer}, oneOf: [{properties: {a: {minimum: 2}}}, {required: [b]}, {additionalProperties: {maximum: 1}}]}
  c: {type: array, items: {type: array, items: {type: integer}}, allOf: [{items: {items: {minimum: 2}}}, {maxItems: 1}], not: {minItems: 3}}
  d: {type: object, properties: {a: {type: array, items: {type: integer}}}, not: {properties: {a: {items: {minimum: 2}}}}}
  e: {type: array, items: {type: array, nullable: true, items: {type: integer}, anyOf: [{items: {minimum: 3}}, {allOf: [{items: {maximum: 1}}]}]}}
not: {properties: {a: {items: {maximum: 0}}}}
`

func joinedObjects() *rapid.Generator[map[string]any] {
	number := rapid.Map(rapid.Int64Range(0, 4), func(n int64) any { return n })
	list := rapid.Map(rapid.SliceOfN(number, 0, 3), func(l []any) any { return l })
	lists := rapid.Map(rapid.SliceOfN(rapid.OneOf(list, list, rapid.Just[any](nil)), 0, 3), func(l []any) any { return l })
	object := rapid.Map(rapid.MapOfN(rapid.SampledFrom([]string{"a", "b"}), rapid.OneOf(number, number, list), 0, 2), func(m map[string]any) any { return m })
	return rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), rapid.OneOf(number, list, list, lists, object), 0, 4)
}

// TestFaultsAreExplainedInFull checks that the bound on faults changes nothing where it is not reached.
func TestFaultsAreExplainedInFull(t *testing.T) {
	for name, c := range map[string]struct {
		schema  string
		objects *rapid.Generator[map[string]any]
	}{"plain": {quickSchema, objects()}, "joined": {joinedSchema, joinedObjects()}} {
		t.Run(name, func(t *testing.T) {
			props := &apiextensionsv1.JSONSchemaProps{}
			if err := yaml.UnmarshalStrict([]byte(c.schema), props); err != nil {
				t.Fatal(err)
			}
			source, err := newSource(&apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: props})
			if err != nil {
				t.Fatal(err)
			}
			s := source.get()
			kubernetes := validation.NewSchemaValidatorFromOpenAPI(s.explain().schema)
			finder := &faultFinder{schema: s.explain().schema}
			list := func(errs field.ErrorList) (out []string) {
				for _, err := range errs {
					out = append(out, err.Error())
				}
				slices.Sort(out)
				return out
			}
			wrong, ratcheted := 0, 0
			rapid.Check(t, func(t *rapid.T) {
				obj, old := c.objects.Draw(t, "object"), c.objects.Draw(t, "old")
				for _, name := range []string{"a", "b", "c", "d", "e"} {
					if v, found := old[name]; found && rapid.Bool().Draw(t, "same") {
						obj[name] = runtime.DeepCopyJSONValue(v)
					}
				}
				want := list(validation.ValidateCustomResource(nil, obj, kubernetes))
				if is := list(validation.ValidateCustomResource(nil, obj, finder)); !slices.Equal(is, want) {
					t.Fatalf("%v\nis   %q\nwant %q", obj, is, want)
				}
				before, after := &unstructured.Unstructured{Object: old}, &unstructured.Unstructured{Object: obj}
				wantUpdate := list(validation.ValidateCustomResourceUpdate(nil, obj, old, kubernetes, validation.WithRatcheting(s.correlate(after, before))))
				if is := list(validation.ValidateCustomResourceUpdate(nil, obj, old, finder, validation.WithRatcheting(s.correlate(after, before)))); !slices.Equal(is, wantUpdate) {
					t.Fatalf("%v after %v\nis   %q\nwant %q", obj, old, is, wantUpdate)
				}
				if len(want) > 0 {
					wrong++
				}
				if len(want) > len(wantUpdate) {
					ratcheted++
				}
			})
			if wrong == 0 || ratcheted == 0 {
				t.Errorf("%d objects were wrong, %d have old faults: the comparison shows nothing", wrong, ratcheted)
			}
			t.Logf("%d objects were wrong, %d have old faults", wrong, ratcheted)
		})
	}
}
