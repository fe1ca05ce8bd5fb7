package custom_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/apiextensions"
	"github.com/sampan-io/sampan/catalog/custom"
)

// definition reads a definition, and fails the test unless it is valid.
func definition(t testing.TB, manifest string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(manifest), d); err != nil {
		t.Fatal(err)
	}
	k := apiextensions.Kinds()[0]
	k.Default(d)
	k.Prepare(d, nil)
	if errs := k.Validate(t.Context(), d, nil); len(errs) > 0 {
		t.Fatal(errs)
	}
	return d
}

// boats returns the definition of boats, with a schema of the spec in YAML.
func boats(t testing.TB, spec string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	return definition(t, `
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: boats, kind: Boat}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: `+spec+`
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`)
}

func kindOf(t testing.TB, d *apiextensionsv1.CustomResourceDefinition) *catalog.Kind {
	t.Helper()
	k, err := custom.Kind(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.New([]*catalog.Kind{k}); err != nil {
		t.Fatal(err)
	}
	return k
}

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Boat", "metadata": map[string]any{"name": "b", "namespace": "default"}}}
	if err := utiljson.Unmarshal(data, &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// write does what the API server does with obj, and returns what is wrong with it.
func write(t testing.TB, k *catalog.Kind, obj, old *unstructured.Unstructured) field.ErrorList {
	t.Helper()
	if _, err := k.Coerce(obj, catalog.Coercion{}); err != nil {
		t.Fatal(err)
	}
	k.Default(obj)
	if old == nil { // not a nil pointer in an interface
		k.Prepare(obj, nil)
		return append(catalog.ValidateMeta(k, obj, nil), k.Validate(t.Context(), obj, nil)...)
	}
	k.Prepare(obj, old)
	return k.Validate(t.Context(), obj, old)
}

func asJSON(t testing.TB, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestObjectsArePrunedAndDefaulted(t *testing.T) {
	k := kindOf(t, boats(t, `
            type: object
            properties:
              crew: {type: integer, default: 2}
              name: {type: string, nullable: true, default: none}
              port: {x-kubernetes-int-or-string: true}
              any: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {known: {type: object, properties: {a: {type: string}}}}}
              part: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              sails: {type: array, items: {type: object, properties: {area: {type: integer, default: 10}}}}
              flags: {type: object, additionalProperties: {type: object, properties: {color: {type: string, default: red}}}}`))
	for in, want := range map[string]string{
		`{}`:                                               `{}`,
		`{spec: {}}`:                                       `{"crew":2,"name":"none"}`,
		`{spec: {crew: null, name: null}}`:                 `{"crew":2,"name":null}`,
		`{spec: {x: 1, port: 80}, y: 2}`:                   `{"crew":2,"name":"none","port":80}`,
		`{spec: {port: http}}`:                             `{"crew":2,"name":"none","port":"http"}`,
		`{spec: {any: {b: 1, known: {c: 1}}}}`:             `{"any":{"b":1,"known":{}},"crew":2,"name":"none"}`,
		`{spec: {sails: [{}, {area: 1, b: 1}]}}`:           `{"crew":2,"name":"none","sails":[{"area":10},{"area":1}]}`,
		`{spec: {flags: {a: {}, b: {color: blue, x: 1}}}}`: `{"crew":2,"flags":{"a":{"color":"red"},"b":{"color":"blue"}},"name":"none"}`,
		`{spec: {part: {apiVersion: v1, kind: Pod, metadata: {name: p, x: 1}, spec: {a: 1}}}}`: `{"crew":2,"name":"none","part":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"a":1}}}`,
	} {
		obj := object(t, in)
		if errs := write(t, k, obj, nil); len(errs) > 0 {
			t.Errorf("%s: %v", in, errs)
		}
		got := obj.Object["spec"]
		if got == nil {
			got = map[string]any{}
		}
		if got := asJSON(t, got); got != want {
			t.Errorf("%s:\n got %s\nwant %s", in, got, want)
		}
		again := obj.DeepCopy()
		k.Default(again)
		if diff := cmp.Diff(obj, again); diff != "" {
			t.Errorf("%s: Default is not idempotent: %s", in, diff)
		}
	}
}

func TestCoerceReportsUnknownFields(t *testing.T) {
	k := kindOf(t, boats(t, `{type: object, properties: {crew: {type: integer}, part: {type: object, x-kubernetes-embedded-resource: true, properties: {a: {type: string}}}}}`))
	obj := object(t, `{metadata: {name: b, labels: {a: b}, shade: 1}, spec: {crew: 1, rats: 3, part: {b: 1, metadata: {c: 1}}}, extra: 1}`)
	unknown, err := k.Coerce(obj, catalog.Coercion{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"spec.rats", "extra", "metadata.shade", "spec.part.b", "spec.part.metadata.c"} {
		if !strings.Contains(" "+strings.Join(unknown, " ")+" ", " "+want+" ") {
			t.Errorf("%q is not in %q", want, unknown)
		}
	}
	if len(unknown) != 5 {
		t.Errorf("unknown = %q", unknown)
	}
	if _, err := k.Coerce(object(t, `{metadata: {name: b, labels: {a: 1}}}`), catalog.Coercion{}); err == nil {
		t.Error("a label that is a number is accepted")
	}
	old := object(t, `{metadata: {name: b, uid: u, labels: {a: 1}}, spec: {rats: 3}}`)
	if _, err := k.Coerce(old, catalog.Coercion{Stored: true}); err != nil || old.GetLabels() != nil || old.GetGeneration() != 1 || old.GetName() != "b" {
		t.Errorf("stored object: %v, %v", err, old.Object)
	}
}

func TestPlainMetadataStaysAsDecodingMakesIt(t *testing.T) {
	k := kindOf(t, boats(t, `{type: object}`))
	for _, meta := range []string{
		`{name: b, namespace: ns, uid: u, resourceVersion: "1", generation: 2, creationTimestamp: "2026-01-01T00:00:00Z", labels: {a: b}, annotations: {c: d}}`,
		`{name: b, managedFields: [{manager: m, operation: Update, apiVersion: example.com/v1, time: "2026-01-01T00:00:00Z", fieldsType: FieldsV1, fieldsV1: {"f:spec": {}}}]}`,
		`{name: b, labels: {}, annotations: null, creationTimestamp: "2026-01-01T01:00:00+01:00"}`,
		`{name: "", generation: 0, finalizers: [a], ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u}]}`,
		`{name: b, creationTimestamp: "0001-01-01T00:00:00Z"}`,
		`{name: b, creationTimestamp: null, deletionTimestamp: null, selfLink: x}`,
	} {
		obj := object(t, `{metadata: `+meta+`}`)
		slow := obj.DeepCopy()
		slow.Object["metadata"].(map[string]any)["unknown"] = int64(1) // takes the way by the Go type
		if _, err := k.Coerce(obj, catalog.Coercion{}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.Coerce(slow, catalog.Coercion{}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(slow.Object, obj.Object); diff != "" {
			t.Errorf("%s: %s", meta, diff)
		}
	}
}

func TestObjectsAreValidated(t *testing.T) {
	k := kindOf(t, boats(t, `
            type: object
            required: [length]
            properties:
              length: {type: integer, minimum: 1, maximum: 100}
              name: {type: string, maxLength: 5, pattern: "^[a-z]+$"}
              color: {type: string, enum: [red, blue]}
              since: {type: string, format: date-time}
              port: {x-kubernetes-int-or-string: true}
              tags: {type: array, maxItems: 2, items: {type: string, maxLength: 10}, x-kubernetes-list-type: set}
              ports: {type: array, maxItems: 5, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [port], items: {type: object, required: [port], properties: {port: {type: integer}}}}
              labels: {type: object, maxProperties: 1, additionalProperties: {type: string}}
              part: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              crew: {type: integer}
            x-kubernetes-validations:
            - {rule: "!has(self.crew) || self.crew <= self.length", message: too many, fieldPath: .crew, reason: FieldValueForbidden}
            - {rule: "!has(self.color) || self.color != 'red'", messageExpression: "'no ' + self.color"}
            - {rule: "self.length >= oldSelf.length"}`))
	const notChecked = `<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation`
	for _, c := range []struct {
		obj, old string
		want     []string
	}{
		{obj: `{spec: {length: 1}}`},
		{obj: `{spec: {}}`, want: []string{`spec.length: Required value`, notChecked}},
		{obj: `{spec: {length: 101}}`, want: []string{`spec.length: Invalid value: 101: spec.length in body should be less than or equal to 100`}},
		{obj: `{spec: {length: 1.5}}`, want: []string{`spec.length: Invalid value: "number": spec.length in body must be of type integer: "number"`, `<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.length`, notChecked}},
		{obj: `{spec: {length: 1, name: abcdef}}`, want: []string{`spec.name: Too long: may not be more than 5 bytes`, notChecked}},
		{obj: `{spec: {length: 1, name: A}}`, want: []string{`spec.name: Invalid value: "A": spec.name in body should match '^[a-z]+$'`}},
		{obj: `{spec: {length: 1, color: green}}`, want: []string{`spec.color: Unsupported value: "green": supported values: "red", "blue"`, notChecked}},
		{obj: `{spec: {length: 1, since: now}}`, want: []string{`spec.since: Invalid value: "now": spec.since in body must be of type date-time: "now"`, notChecked}},
		{obj: `{spec: {length: 1, port: true}}`, want: []string{`spec.port: Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"`, notChecked}},
		{obj: `{spec: {length: 1, tags: [a, a]}}`, want: []string{`spec.tags[1]: Duplicate value: "a"`}},
		{obj: `{spec: {length: 1, tags: [a, b, c]}}`, want: []string{`spec.tags: Too many: 3: must have at most 2 items`, notChecked}},
		{obj: `{spec: {length: 1, ports: [{port: 1}, {port: 1}]}}`, want: []string{`spec.ports[1]: Duplicate value: {"port":1}`}},
		{obj: `{spec: {length: 1, labels: {a: b, c: d}}}`, want: []string{`spec.labels: Too many: 2: must have at most 1 item`, notChecked}},
		{obj: `{spec: {length: 1, part: {kind: Pod}}}`, want: []string{`spec.part.apiVersion: Required value`, notChecked}},
		{obj: `{spec: {length: 1, crew: 2}}`, want: []string{`spec.crew: Forbidden: too many`}},
		{obj: `{spec: {length: 1, color: red}}`, want: []string{`spec: Invalid value: no red`}},
		{obj: `{spec: {length: 1}}`, old: `{spec: {length: 2}}`, want: []string{`spec: Invalid value: failed rule: self.length >= oldSelf.length`}},
		{obj: `{spec: {length: 3, name: TOO-LONG, tags: [a, a]}}`, old: `{spec: {length: 2, name: TOO-LONG, tags: [a, a]}}`}, // was wrong before
		{obj: `{spec: {length: 1}, kind: Ship}`, want: []string{`kind: Invalid value: "Ship": must be Boat`}},
		{obj: `{spec: 5}`, want: []string{`spec: Invalid value: "integer": spec in body must be of type object: "integer"`, notChecked}},
		{obj: `{metadata: {name: B, namespace: default}, spec: {length: 1}}`, want: []string{`metadata.name: Invalid value: "B": a lowercase RFC 1123 subdomain must consist of`}},
	} {
		var old *unstructured.Unstructured
		if c.old != "" {
			old = object(t, c.old)
		}
		errs := write(t, k, object(t, c.obj), old)
		if len(errs) != len(c.want) {
			t.Errorf("%s: %v, want %q", c.obj, errs, c.want)
			continue
		}
		for i, err := range errs {
			if !strings.HasPrefix(err.Error(), c.want[i]) && !(strings.HasPrefix(c.want[i], "spec: Invalid value: ") && strings.HasPrefix(err.Error(), "spec: Invalid value: ") && strings.HasSuffix(err.Error(), strings.TrimPrefix(c.want[i], "spec: Invalid value: "))) {
				t.Errorf("%s:\n got %v\nwant %s", c.obj, err, c.want[i])
			}
		}
	}
}

func TestStatusAndScale(t *testing.T) {
	d := boats(t, `{type: object, properties: {crew: {type: integer, maximum: 9}}}`)
	d.Spec.Versions[0].Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.crew", StatusReplicasPath: ".status.crew", LabelSelectorPath: new(".status.selector")}
	k := kindOf(t, d)
	obj := object(t, `{spec: {crew: 3}, status: {crew: 2, selector: "a=b"}}`)
	if errs := write(t, k, obj, nil); len(errs) > 0 || obj.Object["status"] != nil {
		t.Fatalf("%v, %v", errs, obj)
	}
	status := k.Subresource("status").Shape.(catalog.Part)
	changed := object(t, `{metadata: {name: b, labels: {a: b}}, spec: {crew: 9}, status: {crew: 2, selector: "a=b"}}`)
	status.Prepare(changed, obj)
	if errs := status.Validate(t.Context(), changed, obj); len(errs) > 0 {
		t.Fatal(errs)
	}
	if got, want := asJSON(t, changed.Object), `{"apiVersion":"example.com/v1","kind":"Boat","metadata":{"name":"b","namespace":"default"},"spec":{"crew":3},"status":{"crew":2,"selector":"a=b"}}`; got != want {
		t.Errorf("status:\n got %s\nwant %s", got, want)
	}
	wrong := object(t, `{status: {crew: -1}}`)
	status.Prepare(wrong, obj)
	if errs := status.Validate(t.Context(), wrong, obj); len(errs) != 1 || errs[0].Error() != `.status.crew: Invalid value: -1: should be a non-negative integer` {
		t.Error(errs)
	}

	scale := k.Subresource("scale").Shape.(catalog.View)
	if err := scale.Absent(changed); err != nil {
		t.Error(err)
	}
	got := scale.Get(changed).(*autoscalingv1.Scale)
	if got.Spec.Replicas != 3 || got.Status.Replicas != 2 || got.Status.Selector != "a=b" || got.Name != "b" {
		t.Errorf("scale = %v", got)
	}
	next := changed.DeepCopy()
	got.Spec.Replicas = 12
	if err := scale.Apply(next, got); err != nil {
		t.Fatal(err)
	}
	if errs := scale.Validate(t.Context(), next, changed); len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), `spec.crew: Invalid value: 12: spec.crew in body should be less than or equal to 9`) {
		t.Error(errs)
	}
	if err := scale.Absent(object(t, `{}`)); err == nil || err.Error() != `Internal error occurred: the spec replicas field ".spec.crew" does not exist` {
		t.Error(err)
	}
	unset := object(t, `{}`)
	if err := scale.Apply(unset, scale.Get(unset)); err == nil || err.Error() != `the spec replicas field ".spec.crew" cannot be empty` {
		t.Errorf("a scale without replicas is applied: %v", err)
	}
	if err := scale.Apply(object(t, `{spec: [1]}`), got); err == nil {
		t.Error("a spec that is a list is scaled")
	}
}

func TestColumnsAndFields(t *testing.T) {
	d := boats(t, `{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {harbor: {type: string}, afloat: {type: boolean}}}`)
	v := &d.Spec.Versions[0]
	for _, c := range []struct{ name, kind, path string }{
		{"Name", "string", ".metadata.name"},
		{"Crew", "integer", ".spec.crew"},
		{"Weight", "number", ".spec.weight"},
		{"Afloat", "boolean", ".spec.afloat"},
		{"Since", "date", ".spec.since"},
		{"Sails", "string", ".spec.sails"},
		{"First", "string", ".spec.sails[0]"},
		{"Ready", "string", `.status.conditions[?(@.type=="Ready")].status`},
	} {
		v.AdditionalPrinterColumns = append(v.AdditionalPrinterColumns, apiextensionsv1.CustomResourceColumnDefinition{Name: c.name, Type: c.kind, JSONPath: c.path})
	}
	v.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.harbor"}, {JSONPath: ".spec.afloat"}}
	k := kindOf(t, d)
	now := time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)
	cells := func(text string) string {
		var out []any
		for _, c := range k.Columns {
			out = append(out, c.Cell(object(t, text), now))
		}
		return asJSON(t, out)
	}
	for in, want := range map[string]string{
		`{spec: {crew: 3, weight: 1.5, afloat: true, since: "2026-01-01T00:00:00Z", sails: [a, 1]}, status: {conditions: [{type: Ready, status: "True"}]}}`: `["b",3,1.5,true,"60m","[\"a\",1]","a","True"]`,
		`{}`: `["b",null,null,null,null,null,null,null]`,
		`{spec: {crew: x, weight: 2, afloat: 1, since: never, sails: [null]}}`: `["b",null,2,null,"\u003cinvalid\u003e","[null]","\u003cno value\u003e",null]`,
	} {
		if got := cells(in); got != want {
			t.Errorf("%s:\n got %s\nwant %s", in, got, want)
		}
	}
	obj := object(t, `{spec: {harbor: rotterdam, afloat: true}}`)
	if k.Fields["spec.harbor"](obj) != "rotterdam" || k.Fields["spec.afloat"](obj) != "true" || k.Fields["spec.harbor"](object(t, `{}`)) != "" || len(k.Fields) != 2 {
		t.Error("selectable fields")
	}
	plain := kindOf(t, boats(t, `{type: object}`))
	if len(plain.Columns) != 1 || plain.Columns[0].Name != "Age" || plain.Columns[0].Type != "date" {
		t.Errorf("default columns: %v", plain.Columns)
	}
}

func TestVersionsDiffer(t *testing.T) {
	d := definition(t, `
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: boats, kind: Boat}
  versions:
  - name: v1
    served: false
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {a: {type: string}, b: {type: string, maxLength: 3}}}}}}
  - name: v2
    served: true
    storage: false
    deprecated: true
    subresources: {status: {}}
    selectableFields: [{jsonPath: .spec.b}]
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {b: {type: string, maxLength: 5}, c: {type: string, default: x}}}}}}
  - name: v3
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`)
	k, err := custom.Kind(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := catalog.New([]*catalog.Kind{k})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Kinds()) != 2 || c.Kinds()[0].Version != "v2" {
		t.Fatalf("kinds = %v", c.Kinds())
	}
	v2 := c.Kinds()[0]
	if got, want := v2.Deprecation(), "example.com/v2 Boat is deprecated; use example.com/v3 Boat"; got != want {
		t.Errorf("Deprecation = %q, want %q", got, want)
	}
	if v2.Subresource("status") == nil || k.Subresource("status") != nil || v2.Fields["spec.b"] == nil || k.Fields["spec.b"] != nil {
		t.Error("subresources and fields are not those of the version")
	}
	obj := object(t, `{spec: {a: x, b: yyyy}}`)
	seen, err := v2.FromHub(obj)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := asJSON(t, seen.(*unstructured.Unstructured).Object["spec"]), `{"b":"yyyy","c":"x"}`; got != want || seen.GetObjectKind().GroupVersionKind().Version != "v2" {
		t.Errorf("v2: %s, want %s", got, want)
	}
	if got := asJSON(t, obj.Object["spec"]); got != `{"a":"x","b":"yyyy"}` {
		t.Errorf("conversion changed the object: %s", got)
	}
	if errs := v2.Validate(t.Context(), obj, nil); len(errs) > 0 {
		t.Errorf("v2: %v", errs)
	}
	if errs := k.Validate(t.Context(), obj, nil); len(errs) != 1 {
		t.Errorf("v1: %v", errs)
	}
}

func TestFinalizersWithoutDomainAreWarnedOf(t *testing.T) {
	k := kindOf(t, boats(t, `{type: object}`))
	got := k.Warn(object(t, `{metadata: {name: b, finalizers: [a.b, c, d.e/f, foregroundDeletion]}}`), nil)
	want := []string{
		`metadata.finalizers: "a.b": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers`,
		`metadata.finalizers: "c": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestRealDefinitions reads the definitions below $SAMPAN_CRDS, those of other projects: none may be refused.
func TestRealDefinitions(t *testing.T) {
	dir := os.Getenv("SAMPAN_CRDS")
	if dir == "" {
		t.Skip("SAMPAN_CRDS is not set")
	}
	n := 0
	err := filepath.WalkDir(dir, func(file string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, ".yaml") && !strings.HasSuffix(file, ".yml") {
			return nil
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, doc := range strings.Split(string(data), "\n---") {
			d := &apiextensionsv1.CustomResourceDefinition{}
			if yaml.Unmarshal([]byte(doc), d) != nil || d.Kind != "CustomResourceDefinition" || d.APIVersion != "apiextensions.k8s.io/v1" || d.Spec.Group == "" || strings.Contains(doc, "{{") {
				continue
			}
			n++
			d.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
			k := apiextensions.Kinds()[0]
			k.Default(d)
			k.Prepare(d, nil)
			start := time.Now()
			if errs := append(catalog.ValidateMeta(k, d, nil), k.Validate(t.Context(), d, nil)...); len(errs) > 0 {
				t.Errorf("%s: %s: %.2000v", file, d.Name, errs)
				continue
			}
			checked := time.Since(start)
			kind, err := custom.Kind(d, nil)
			if err != nil {
				t.Errorf("%s: %s: %v", file, d.Name, err)
				continue
			}
			obj := kind.New().(*unstructured.Unstructured)
			obj.SetName("x")
			start = time.Now()
			kind.Default(obj)
			kind.Validate(t.Context(), obj, nil)
			t.Logf("%s: checked in %v, compiled in %v", d.Name, checked, time.Since(start))
		}
		return nil
	})
	if err != nil || n == 0 {
		t.Fatalf("%d definitions, %v", n, err)
	}
	t.Logf("%d definitions", n)
}
