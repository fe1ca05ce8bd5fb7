package definition_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/await/definition"
)

func TestFind(t *testing.T) {
	crd := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": "example.com", "scope": "Cluster",
		"names": map[string]any{"plural": "boats", "singular": "boat", "kind": "Boat", "shortNames": []any{"bt"}},
		"versions": []any{
			map[string]any{"name": "v1", "served": true, "storage": false},
			map[string]any{"name": "v2", "served": true, "storage": true},
			map[string]any{"name": "v3", "served": false, "storage": false},
		},
	}}}
	for _, tt := range []struct {
		name string
		want schema.GroupVersion
		is   string // the version; empty if it is another kind
	}{
		{"boats", schema.GroupVersion{}, "v2"},
		{"boat", schema.GroupVersion{}, "v2"},
		{"BOAT", schema.GroupVersion{}, "v2"},
		{"bt", schema.GroupVersion{}, "v2"},
		{"boats.example.com", schema.GroupVersion{}, "v2"},
		{"boats.v1.example.com", schema.GroupVersion{}, "v1"},
		{"boats.v3.example.com", schema.GroupVersion{}, ""},
		{"boats.v9.example.com", schema.GroupVersion{}, ""},
		{"boats.example.org", schema.GroupVersion{}, ""},
		{"ships", schema.GroupVersion{}, ""},
		{"", schema.GroupVersion{}, ""},
		{"Boat", schema.GroupVersion{Group: "example.com", Version: "v1"}, "v1"},
		{"Boat", schema.GroupVersion{Group: "example.com"}, "v2"},
		{"Boat", schema.GroupVersion{Group: "example.org", Version: "v1"}, ""},
		{"boats.v2.example.com", schema.GroupVersion{Version: "v1"}, ""},
	} {
		k, is := definition.Find(crd, tt.name, tt.want)
		if is != (tt.is != "") || is && (k.Resource != schema.GroupVersionResource{Group: "example.com", Version: tt.is, Resource: "boats"} || k.Kind != "Boat" || k.Namespaced) {
			t.Errorf("%q in %v: %+v, %v, want %q", tt.name, tt.want, k, is, tt.is)
		}
	}
	if _, is := definition.Find(&unstructured.Unstructured{}, "boats", schema.GroupVersion{}); is {
		t.Error("an empty definition was taken")
	}
}
