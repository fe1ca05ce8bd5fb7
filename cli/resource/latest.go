package resource

import (
	"context"
	"fmt"
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

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

// Watch yields the events of the object or of the objects of the selection, beginning with
// an Added event for each existing one. It ends like a watch of [client.Interface]: with
// an error, or when ctx is cancelled.
func (i Info) Watch(ctx context.Context, c client.Interface) iter.Seq2[watch.Event, error] {
	return func(yield func(watch.Event, error) bool) {
		opts := metav1.ListOptions{LabelSelector: i.Labels, FieldSelector: i.Fields}
		if !i.Selection {
			opts = metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", i.Name).String()}
		}
		now, meta, err := c.List(ctx, i.Mapping.GroupVersionResource, i.Namespace, opts)
		if err != nil {
			yield(watch.Event{}, err)
			return
		}
		for _, o := range now {
			if !yield(watch.Event{Type: watch.Added, Object: o}, nil) {
				return
			}
		}
		opts.ResourceVersion = meta.ResourceVersion
		for e, err := range c.Watch(ctx, i.Mapping.GroupVersionResource, i.Namespace, opts) {
			if !yield(e, err) {
				return
			}
		}
	}
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
