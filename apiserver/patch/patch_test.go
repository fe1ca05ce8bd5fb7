package patch_test

import (
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/patch"
	"github.com/sampan-io/sampan/internal/hangtest"
)

func TestApply(t *testing.T) {
	const pod = `{"metadata":{"name":"a","labels":{"x":"1"},"generation":9007199254740993},"spec":{"containers":[{"name":"c","image":"i:1"},{"name":"d","image":"i:1"}]}}`
	const strategic, merge, operations = types.StrategicMergePatchType, types.MergePatchType, types.JSONPatchType
	tests := []struct {
		name  string
		kind  types.PatchType
		patch string
		want  string // contained in the result
		code  int32  // of the refusal, if it is not 0
	}{
		{"strategic merges by key", strategic, `{"spec":{"containers":[{"name":"c","image":"i:2"}]}}`, `[{"image":"i:2","name":"c"},{"image":"i:1","name":"d"}]`, 0},
		{"strategic deletes by key", strategic, `{"spec":{"containers":[{"name":"c","$patch":"delete"}]}}`, `[{"image":"i:1","name":"d"}]`, 0},
		{"strategic without a key", strategic, `{"spec":{"containers":[{"image":"i:2"}]}}`, "", 422},
		{"strategic is no list", strategic, `[]`, "", 400},
		{"strategic is broken", strategic, `{"spec":`, "", 400},
		{"merge replaces lists", merge, `{"spec":{"containers":[]}}`, `"containers":[]`, 0},
		{"merge removes by null", merge, `{"metadata":{"labels":null}}`, `"name":"a"`, 0},
		{"merge keeps large numbers", merge, `{}`, `9007199254740993`, 0},
		{"merge is no object", merge, `"x"`, "", 400},
		{"merge is broken", merge, `{"a"`, "", 400},
		{"replace sets what is not there", operations, `[{"op":"replace","path":"/spec/hostname","value":"h"}]`, `"hostname":"h"`, 0},
		{"replace in what is not there", operations, `[{"op":"replace","path":"/spec/affinity/nodeAffinity","value":{}}]`, ``, 422},
		{"operations", operations, `[{"op":"test","path":"/metadata/name","value":"a"},{"op":"replace","path":"/spec/containers/1/image","value":"i:3"}]`, `i:3`, 0},
		{"a test that fails", operations, `[{"op":"test","path":"/metadata/name","value":"b"}]`, "", 422},
		{"a path that is not there", operations, `[{"op":"remove","path":"/nowhere"}]`, "", 422},
		{"operations are no object", operations, `{}`, "", 400},
		{"too many operations", operations, "[" + strings.TrimSuffix(strings.Repeat(`{"op":"test","path":"/a"},`, 10_001), ",") + "]", "", 413},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := patch.Apply(tt.kind, []byte(tt.patch), []byte(pod), &corev1.Pod{})
			if tt.code != 0 {
				if status, ok := err.(apierrors.APIStatus); !ok || status.Status().Code != tt.code {
					t.Errorf("Apply = %v, want a status of %d", err, tt.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var anything any
			if err := json.Unmarshal(got, &anything); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(got), tt.want) {
				t.Errorf("got %s, want it to contain %s", got, tt.want)
			}
		})
	}
}

func TestTypeOf(t *testing.T) {
	if got, err := patch.TypeOf("application/merge-patch+json; charset=utf-8", patch.Types()); got != types.MergePatchType || err != nil {
		t.Errorf("TypeOf = %v, %v", got, err)
	}
	if got, err := patch.TypeOf("application/apply-patch+yaml", patch.Types()); got != types.ApplyYAMLPatchType || err != nil {
		t.Errorf("TypeOf = %v, %v", got, err)
	}
	_, err := patch.TypeOf("application/apply-patch+cbor", patch.Types())
	if !apierrors.IsUnsupportedMediaType(err) || !strings.Contains(err.Error(), "application/apply-patch+yaml") || !strings.Contains(err.Error(), "application/strategic-merge-patch+json") {
		t.Errorf("TypeOf(CBOR) = %v, want a 415 that lists what is supported", err)
	}
}

// TestOperationsOnNullAreErrors has the cases in which the library dereferences nil.
func TestOperationsOnNullAreErrors(t *testing.T) {
	const original = `{"a": {"b": [null, 1]}, "n": null}`
	for name, tt := range map[string]struct{ patch, want string }{
		"replace without value":   {`[{"op": "replace", "path": ""}]`, "replace operation of the whole document has no value"},
		"test without value":      {`[{"op": "test", "path": ""}]`, "test operation of the whole document has no value"},
		"replace by null":         {`[{"op": "replace", "path": "", "value": null}]`, "replace operation value must be object or array"},
		"test of null in a list":  {`[{"op": "test", "path": "/a/b", "value": [null, 1]}]`, "a value that is null"},
		"test with null":          {`[{"op": "test", "path": "/a/b", "value": [1, null]}]`, "a value that is null"},
		"addition to a null copy": {`[{"op": "add", "path": "/m", "value": null}, {"op": "copy", "from": "/m", "path": "/c"}, {"op": "add", "path": "/c/x", "value": 1}]`, "a value that is null"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := patch.Apply(types.JSONPatchType, []byte(tt.patch), []byte(original), nil)
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %s and the error %v, want a 422 with %q", got, err, tt.want)
			}
			operations, err := jsonpatch.DecodePatch([]byte(tt.patch))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := patch.ApplyOperations(operations, []byte(original)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("for a policy: %v, want %q", err, tt.want)
			}
		})
	}
}

// FuzzOperations checks that a JSON patch makes JSON, or an error of the client.
func FuzzOperations(f *testing.F) {
	paths := []string{"", "/", "/a", "/a/b", "/a/b/0", "/a/b/-", "/a/b/-1", "/a/b/9", "/n", "/n/x", "/m", "/~1", "a"}
	values := []string{"", `"value": null`, `"value": 1`, `"value": [null]`, `"value": {"x": null}`, `"value": [null, 1]`}
	for _, op := range []string{"add", "remove", "replace", "move", "copy", "test", ""} {
		for _, path := range paths {
			for _, value := range values {
				f.Add(op, path, "/n", value, "add", path+"/x", "", value)
			}
			if op == "move" || op == "copy" {
				f.Add(op, path, "/a/b/0", "", "add", path+"/x", "", `"value": null`)
			}
		}
	}
	original := []byte(`{"a": {"b": [null, 1, {}]}, "n": null, "": 1}`)
	f.Fuzz(func(t *testing.T, op1, path1, from1, value1, op2, path2, from2, value2 string) {
		defer hangtest.Guard(t)()
		operation := func(op, path, from, value string) string {
			names, err := json.Marshal(map[string]string{"op": op, "path": path, "from": from})
			if err != nil {
				t.Fatal(err)
			}
			if value == "" {
				return string(names)
			}
			return string(names[:len(names)-1]) + ", " + value + "}"
		}
		text := "[" + operation(op1, path1, from1, value1) + ", " + operation(op2, path2, from2, value2) + "]"
		got, err := patch.Apply(types.JSONPatchType, []byte(text), original, nil)
		switch {
		case err == nil && !json.Valid(got):
			t.Errorf("%s makes %s", text, got)
		case err != nil && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err):
			t.Errorf("%s: %v", text, err)
		}
	})
}
