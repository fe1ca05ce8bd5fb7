package custom

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Converter converts objects of one custom resource between its versions.
type Converter interface {
	// Convert returns objs, which may be of several versions, in version to, in their order. It does not change objs;
	// results may share memory with them. Only labels and annotations of the metadata differ from those of objs.
	Convert(ctx context.Context, objs []*unstructured.Unstructured, to schema.GroupVersion) ([]*unstructured.Unstructured, error)
}

// Unconverted is the Converter of definitions whose conversion strategy is None: only apiVersion changes.
type Unconverted struct{}

// Convert implements [Converter].
func (Unconverted) Convert(_ context.Context, objs []*unstructured.Unstructured, to schema.GroupVersion) ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, len(objs))
	for i, obj := range objs {
		out[i] = relabelled(obj, to)
	}
	return out, nil
}

// relabelled returns obj with another apiVersion; it shares everything else.
func relabelled(obj *unstructured.Unstructured, to schema.GroupVersion) *unstructured.Unstructured {
	if obj.GetAPIVersion() == to.String() {
		return obj
	}
	content := make(map[string]any, len(obj.Object))
	for k, v := range obj.Object {
		content[k] = v
	}
	content["apiVersion"] = to.String()
	return &unstructured.Unstructured{Object: content}
}
