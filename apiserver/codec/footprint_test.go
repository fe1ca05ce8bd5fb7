package codec_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/core"
)

// TestTheMarkOfADeletionTakesNoMoreMemory deletes objects that finalizers keep, with a propagation policy that adds one.
func TestTheMarkOfADeletionTakesNoMoreMemory(t *testing.T) {
	c, err := catalog.New(core.Kinds())
	if err != nil {
		t.Fatal(err)
	}
	custom := &catalog.Kind{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Ferry"}, Resource: "ferries"}
	for _, tt := range []struct {
		kind *catalog.Kind
		make func() catalog.Object
	}{
		{c.Snapshot().Resource(corev1.SchemeGroupVersion.WithResource("configmaps")), func() catalog.Object { return &corev1.ConfigMap{} }},
		{c.Snapshot().Resource(corev1.SchemeGroupVersion.WithResource("pods")), func() catalog.Object { return &corev1.Pod{} }},
		{custom, func() catalog.Object {
			return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}}}
		}},
	} {
		size := func(change func(obj catalog.Object)) int {
			obj := tt.make()
			obj.SetName("a")
			obj.SetFinalizers([]string{"a.b/c"})
			change(obj)
			item, err := codec.NewItem(tt.kind, obj)
			if err != nil {
				t.Fatal(err)
			}
			return item.Footprint()
		}
		before := size(func(catalog.Object) {})
		after := size(func(obj catalog.Object) {
			now := metav1.NewTime(time.Now())
			obj.SetDeletionTimestamp(&now)
			obj.SetDeletionGracePeriodSeconds(new(int64(30)))
			obj.SetFinalizers([]string{"a.b/c", metav1.FinalizerDeleteDependents})
		})
		if after > before {
			t.Errorf("%s: %d bytes before the mark, %d with it", tt.kind.Kind, before, after)
		}
	}
}
