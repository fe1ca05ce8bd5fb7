package garbage

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
)

// TestForeignFollowsOwnerReferences changes the owners of an object, in versions and kinds.
func TestForeignFollowsOwnerReferences(t *testing.T) {
	configMaps := client.Resource[client.Object](client.ConfigMaps)
	k := &kindCache{res: configMaps}
	owned := func(refs ...metav1.OwnerReference) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", OwnerReferences: refs}}
	}
	widget := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Widget", Name: "w"}
	newer := metav1.OwnerReference{APIVersion: "example.com/v2", Kind: "Widget", Name: "x"}
	gadget := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Gadget", Name: "g"}
	builtin := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "c"}
	bad := metav1.OwnerReference{APIVersion: "a/b/c", Kind: "Widget", Name: "b"}
	f := newForeign([]client.Resource[client.Object]{configMaps})
	states := []client.Object{
		nil, owned(), owned(widget, builtin, bad), owned(newer, gadget), owned(gadget), owned(gadget, widget, newer), owned(newer), nil,
	}
	for i, after := range states[1:] {
		f.changed(k, states[i], after)
		for _, kind := range []string{"Widget", "Gadget"} {
			want := after != nil && slices.ContainsFunc(after.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.Kind == kind && r.APIVersion != bad.APIVersion })
			keys := f.of(schema.GroupKind{Group: "example.com", Kind: kind})
			if got := slices.Contains(keys, item{k, owned()}.key()); got != want || len(keys) > 1 {
				t.Errorf("state %d: the objects with owners of kind %s are %v, want this one: %v", i+1, kind, keys, want)
			}
		}
		if keys := f.of(schema.GroupKind{Kind: "ConfigMap"}); len(keys) > 0 {
			t.Errorf("state %d: objects with owners of a built-in kind: %v", i+1, keys)
		}
	}
	if len(f.objects) > 0 {
		t.Errorf("after the deletion there is %v", f.objects)
	}
}
