package resource

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
)

// Latest returns info with its object as the server has it now. Objects from files
// keep their place in the file. For a selection, which is no single object, it is an
// error.
func (i Info) Latest(ctx context.Context, c client.Interface) (Info, error) {
	if i.Selection || i.Name == "" {
		return i, fmt.Errorf("%s: must have a name to be read again", i.Source)
	}
	obj, err := c.Get(ctx, i.Mapping.GroupVersionResource, i.Namespace, i.Name, "")
	if err != nil {
		return i, err
	}
	i.Object, err = Unstructured(obj)
	return i, err
}

// Unstructured returns an object that a server answered with as fields. It may share
// memory with obj.
func Unstructured(obj runtime.Object) (*unstructured.Unstructured, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u, nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("the server returned a %T: %w", obj, err)
	}
	u := &unstructured.Unstructured{Object: fields}
	if u.GetKind() == "" {
		u.SetGroupVersionKind(client.KindOf(obj))
	}
	return u, nil
}

// A Written names an object that a verb has written, as it was after the write.
type Written struct {
	Mapping         Mapping
	Namespace, Name string
	UID             types.UID
	Generation      int64 // 0 for kinds that have none
	ResourceVersion string

	Deleted bool // its deletion was accepted
}

// WrittenAs returns what obj, the answer to a write, says of itself.
func (m Mapping) WrittenAs(obj metav1.Object) Written {
	return Written{
		Mapping: m, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
		Generation: obj.GetGeneration(), ResourceVersion: obj.GetResourceVersion(),
	}
}

// String returns kind/name as kubectl prints objects.
func (w Written) String() string { return w.Mapping.Called(w.Name) }
