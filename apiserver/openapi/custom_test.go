package openapi

import (
	"encoding/json"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// TestOlderSchema expects of each schema what upstream's ToStructuralOpenAPIV2 makes of it.
func TestOlderSchema(t *testing.T) {
	for name, test := range map[string]struct{ schema, want string }{
		"rules of values": {
			`{"type":"object","properties":{"a":{"type":"string","pattern":"x|y","minLength":1,"enum":["x","y"]},"b":{"type":"integer","maximum":3}},"maxProperties":2}`,
			`{"type":"object","properties":{"a":{"type":"string","pattern":"x|y","minLength":1,"enum":["x","y"]},"b":{"type":"integer","maximum":3}},"maxProperties":2}`,
		},
		"combined schemas": {
			`{"type":"object","properties":{"a":{"type":"string","allOf":[{"minLength":1},{"pattern":"x"}],"not":{"enum":["y"]}}},"anyOf":[{"required":["a"]}],"oneOf":[{"required":["a"]}]}`,
			`{"type":"object","properties":{"a":{"type":"string"}}}`,
		},
		"null": {
			`{"type":"object","required":["a","b"],"properties":{"a":{"type":"object","nullable":true,"properties":{"c":{"type":"string"}}},"b":{"type":"array","items":{"type":"string","nullable":true}}}}`,
			`{"type":"object","required":["b"],"properties":{"a":{},"b":{"type":"array","items":{}}}}`,
		},
		"unknown fields": {
			`{"type":"object","properties":{"a":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"c":{"type":"string"}}},"b":{"type":"array","x-kubernetes-preserve-unknown-fields":true,"items":{"type":"string"}}}}`,
			`{"type":"object","properties":{"a":{"x-kubernetes-preserve-unknown-fields":true},"b":{"x-kubernetes-preserve-unknown-fields":true}}}`,
		},
		"unknown fields at the top": {
			`{"type":"object","description":"Anything.","x-kubernetes-preserve-unknown-fields":true,"x-kubernetes-group-version-kind":[{"kind":"A"}],"properties":{"c":{"type":"string"}}}`,
			`{"type":"object","x-kubernetes-group-version-kind":[{"kind":"A"}]}`,
		},
		"a map": {
			`{"type":"object","additionalProperties":{"type":"string","nullable":true}}`,
			`{"type":"object","additionalProperties":{}}`,
		},
		"a reference": {
			`{"type":"object","properties":{"metadata":{"description":"Metadata.","allOf":[{"$ref":"#/components/schemas/io.k8s.ObjectMeta"}]}}}`,
			`{"type":"object","properties":{"metadata":{"description":"Metadata.","$ref":"#/definitions/io.k8s.ObjectMeta"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var whole spec.Schema
			if err := json.Unmarshal([]byte(test.schema), &whole); err != nil {
				t.Fatal(err)
			}
			before := asJSON(t, &whole)
			got, want := asJSON(t, (&model{custom: &whole}).older()), asJSON(t, json.RawMessage(test.want))
			if got != want {
				t.Errorf("older schema:\n%s\nwant\n%s", got, want)
			}
			if after := asJSON(t, &whole); after != before {
				t.Errorf("the schema itself was changed to %s", after)
			}
		})
	}
}

// asJSON returns a value as JSON with sorted fields.
func asJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(data, &plain); err != nil {
		t.Fatal(err)
	}
	data, err = json.Marshal(plain)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
