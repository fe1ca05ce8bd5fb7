package patch_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/patch"
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
