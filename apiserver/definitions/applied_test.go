package definitions_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// schemaOf gives all versions of a definition a schema in JSON, and a status.
func schemaOf(text string) func(*apiextensionsv1.CustomResourceDefinition) {
	return func(d *apiextensionsv1.CustomResourceDefinition) {
		for i := range d.Spec.Versions {
			s := &apiextensionsv1.JSONSchemaProps{}
			if err := json.Unmarshal([]byte(text), s); err != nil {
				panic(err)
			}
			d.Spec.Versions[i].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: s}
			d.Spec.Versions[i].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
		}
	}
}

// apply applies the fields of a widget, through a subresource if sub is not empty.
func (s *server) apply(gvr schema.GroupVersionResource, name, fields, sub string) (*unstructured.Unstructured, error) {
	s.t.Helper()
	force := true
	got, err := s.Patch(s.t.Context(), gvr, "default", name, types.ApplyPatchType,
		[]byte(`{"apiVersion":"`+gvr.GroupVersion().String()+`","kind":"Widget","metadata":{"name":"`+name+`"},`+fields+`}`), metav1.PatchOptions{FieldManager: "m", Force: &force}, sub)
	if err != nil {
		return nil, err
	}
	return got.(*unstructured.Unstructured), nil
}

// faults returns the fields and messages of an error.
func faults(err error) (all []string) {
	status, ok := err.(apierrors.APIStatus) //nolint:errorlint // it is not wrapped
	if !ok || status.Status().Details == nil {
		return []string{err.Error()}
	}
	for _, c := range status.Status().Details.Causes {
		all = append(all, c.Field+": "+c.Message)
	}
	slices.Sort(all)
	return all
}

const nullable = `{"type":"object","properties":{
	"spec":{"type":"object","properties":{
		"plain":{"type":"string"}, "number":{"type":"integer"}, "list":{"type":"array","items":{"type":"string"}}, "object":{"type":"object","properties":{"a":{"type":"string"}}},
		"default":{"type":"string","default":"d"}, "nullable":{"type":"string","nullable":true}, "both":{"type":"string","nullable":true,"default":"d"},
		"map":{"type":"object","additionalProperties":{"type":"string"}}, "any":{"x-kubernetes-preserve-unknown-fields":true},
		"items":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}}}}}},
	"status":{"type":"object","properties":{"plain":{"type":"string"}}}}}`

// TestNullsInCustomResources checks what becomes of null where the schema allows it, has a default, or neither. All
// verbs but apply drop the last one, and apply refuses it, as kube-apiserver.
func TestNullsInCustomResources(t *testing.T) {
	s := open(t, nil)
	s.define(widgets("v1", schemaOf(nullable)))
	const nulls = `"plain":null,"number":null,"list":null,"object":null,"default":null,"nullable":null,"both":null,"map":{"x":null},"any":null,"items":[{"a":null}]`
	const left = `{"both":null,"default":"d","items":[{}],"map":{},"nullable":null}`
	spec := func(name string, got *unstructured.Unstructured, err error, want string) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", name, faults(err))
			return
		}
		if text, err := json.Marshal(got.Object["spec"]); err != nil || string(text) != want {
			t.Errorf("%s: the spec is %s, want %s (%v)", name, text, want, err)
		}
	}
	obj := func(name, spec string) *unstructured.Unstructured {
		u := widget(v1, name)
		var fields map[string]any
		if err := json.Unmarshal([]byte(spec), &fields); err != nil {
			t.Fatal(err)
		}
		u.Object["spec"] = fields
		return u
	}
	made, err := s.Create(t.Context(), v1, "default", "", obj("created", "{"+nulls+"}"), metav1.CreateOptions{}, "")
	spec("create", asUntyped(made), err, left)
	if err == nil {
		again := obj("created", "{"+nulls+"}")
		again.SetResourceVersion(asUntyped(made).GetResourceVersion())
		put, err := s.Update(t.Context(), v1, "default", "created", again, metav1.UpdateOptions{}, "")
		spec("update", asUntyped(put), err, left)
	}
	patched, err := s.Patch(t.Context(), v1, "default", "created", types.JSONPatchType, []byte(`[{"op":"add","path":"/spec","value":{`+nulls+`}}]`), metav1.PatchOptions{}, "")
	spec("JSON patch", asUntyped(patched), err, left)
	patched, err = s.Patch(t.Context(), v1, "default", "created", types.MergePatchType, []byte(`{"spec":{"items":[{"a":null}],`+nulls[:strings.Index(nulls, `,"items"`)]+`}}`), metav1.PatchOptions{}, "")
	spec("merge patch", asUntyped(patched), err, `{"both":"d","default":"d","items":[{}],"map":{}}`)
	patched, err = s.Patch(t.Context(), v1, "default", "created", types.MergePatchType, []byte(`{"spec":null}`), metav1.PatchOptions{}, "")
	spec("merge patch of the whole", asUntyped(patched), err, "null")

	for _, gvr := range []schema.GroupVersionResource{v1, v2} {
		for _, name := range []string{"created", "applied"} { // one that there is, and a new one
			for fields, want := range map[string][]string{
				`"spec":{"plain":null}`:                   {`spec.plain: Invalid value: "null": spec.plain in body must be of type string: "null"`},
				`"spec":{"number":null,"list":null}`:      {`spec.list: Invalid value: "null": spec.list in body must be of type array: "null"`, `spec.number: Invalid value: "null": spec.number in body must be of type integer: "null"`},
				`"spec":{"object":null}`:                  {`spec.object: Invalid value: "null": spec.object in body must be of type object: "null"`},
				`"spec":{"map":{"x":null}}`:               {`spec.map.x: Invalid value: "null": spec.map.x in body must be of type string: "null"`},
				`"spec":{"items":[{"a":"b"},{"a":null}]}`: {`spec.items[1].a: Invalid value: "null": spec.items[1].a in body must be of type string: "null"`},
				`"spec":null`:                             {`spec: Invalid value: "null": spec in body must be of type object: "null"`},
			} {
				if got, err := s.apply(gvr, name, fields, ""); err == nil || !slices.Equal(faults(err), want) {
					t.Errorf("apply of %s to %s in %s: %v, %v, want %q", fields, name, gvr.Version, got, err, want)
				}
			}
		}
	}
	got, err := s.apply(v1, "new", `"spec":{"default":null,"nullable":null,"both":null,"any":null}`, "")
	spec("apply", got, err, `{"both":null,"default":"d","nullable":null}`)
	if _, err := s.apply(v1, "new", `"status":{"plain":null}`, "status"); err == nil || !strings.Contains(err.Error(), "plain in body must be of type string") {
		t.Errorf("apply to the status: %v", err)
	}
}

// TestNullsInAnotherVersion applies nulls to a version whose schema is not that of the stored one. Answers are those of kube-apiserver.
func TestNullsInAnotherVersion(t *testing.T) {
	const other = `{"type":"object","properties":{
	"spec":{"type":"object","properties":{
		"plain":{"type":"string","nullable":true}, "nullable":{"type":"string"}, "either":{"x-kubernetes-int-or-string":true}, "any":{"x-kubernetes-preserve-unknown-fields":true},
		"default":{"type":"string","default":"d"}, "items":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}}}}}},
	"status":{"type":"object","properties":{"plain":{"type":"string"}}}}}`
	s := open(t, nil)
	s.define(widgets("v1", func(d *apiextensionsv1.CustomResourceDefinition) {
		schemaOf(nullable)(d)
		for i := range d.Spec.Versions {
			if v := &d.Spec.Versions[i]; v.Name == "v2" {
				schema := &apiextensionsv1.JSONSchemaProps{}
				if err := json.Unmarshal([]byte(other), schema); err != nil {
					t.Fatal(err)
				}
				v.Schema.OpenAPIV3Schema = schema
			}
		}
	}))
	if _, err := s.apply(v2, "b", `"spec":{}`, ""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} { // the first apply that succeeds makes a
		for _, c := range []struct {
			fields, sub string
			want        []string
		}{
			{`"spec":{"nullable":null}`, "", []string{`spec.nullable: Invalid value: "null": spec.nullable in body must be of type string: "null"`}},
			{`"spec":{"either":null,"items":[{"a":null}]}`, "", []string{
				`spec.either: Invalid value: "null": spec.either in body must be of type integer,string: "null"`,
				`spec.items[0].a: Invalid value: "null": spec.items[0].a in body must be of type string: "null"`,
			}},
			{`"spec":null`, "", []string{`spec: Invalid value: "null": spec in body must be of type object: "null"`}},
			{`"spec":{"plain":null,"any":null,"default":null},"status":{"plain":null}`, "", nil},
			{`"spec":{"nullable":null},"status":{}`, "status", nil},
			{`"status":null`, "status", nil},
			{`"status":{"plain":null}`, "status", []string{`status.plain: Invalid value: "null": status.plain in body must be of type string: "null"`}},
		} {
			got, err := s.apply(v2, name, c.fields, c.sub)
			if c.want == nil && err != nil || c.want != nil && (err == nil || !slices.Equal(faults(err), c.want)) {
				t.Errorf("apply of %s to %s: %v, %v, want %q", c.fields, name, got, err, c.want)
			}
		}
	}
}

func asUntyped(obj any) *unstructured.Unstructured {
	u, _ := obj.(*unstructured.Unstructured)
	return u
}

// TestApplyToEmbeddedResources has them in a field, a list and a map.
func TestApplyToEmbeddedResources(t *testing.T) {
	const embedded = `{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"data":{"type":"string"}}}`
	s := open(t, nil)
	s.define(widgets("v1", schemaOf(`{"type":"object","properties":{"spec":{"type":"object","properties":{
		"one":`+embedded+`,"list":{"type":"array","items":`+embedded+`},"lists":{"type":"array","items":{"type":"array","items":`+embedded+`}},"map":{"type":"object","additionalProperties":`+embedded+`}}}}}`)))
	const inner = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"a":"b"}},"data":"x"}`
	for _, fields := range []string{
		`"spec":{"one":` + inner + `}`,
		`"spec":{"one":` + inner + `,"list":[` + inner + `]}`,
		`"spec":{"list":[` + inner + `,` + inner + `],"lists":[[` + inner + `]],"map":{"x":` + inner + `}}`,
	} {
		if _, err := s.apply(v1, "a", fields, ""); err != nil {
			t.Errorf("apply %s: %v", fields, err)
		}
	}
	if _, err := s.apply(v1, "a", `"spec":{"one":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"creationTimestamp":"a"}}}`, ""); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.one.metadata: Invalid value") {
		t.Errorf("apply of wrong metadata: %v", err)
	}
	if _, err := s.apply(v1, "a", `"spec":{"list":[{"kind":"ConfigMap","apiVersion":"v1","odd":1}]}`, ""); err == nil || !strings.Contains(err.Error(), "odd: field not declared in schema") {
		t.Errorf("apply of an unknown field: %v", err)
	}
}
