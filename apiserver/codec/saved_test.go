package codec

import (
	"bytes"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/kinds"
)

func TestSavedKeepsNothing(t *testing.T) {
	c, err := catalog.New(kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	kind := c.Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	item, err := NewItem(kind, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b"}, Data: map[string]string{"k": "v"}})
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(item.Bytes())
	item.Place(1, 2)
	var saver Saver
	for i := range 5 {
		got, ok := saver.Saved(item)
		if !ok || !bytes.Equal(got, want) {
			t.Fatalf("saved as %q, %v, want %q", got, ok, want)
		}
		if item.proto.Load() != nil || item.askedProto {
			t.Fatalf("the item keeps its encoding after being saved %d times", i+1)
		}
	}
	if raw, ok := saver.Saved(&Raw{data: []byte("x")}); !ok || string(raw) != "x" {
		t.Errorf("a record of an unknown kind is saved as %q, %v", raw, ok)
	}
	if _, ok := saver.Saved(badItem(kind, "configmaps/b/a", nil, errors.New("damaged"))); ok {
		t.Error("an unreadable record is saved as its stand-in")
	}
}
