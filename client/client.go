package client

import (
	"context"
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Interface performs API requests as one user. The namespace is empty for
// cluster-scoped resources and for lists and watches across all namespaces. It
// is safe for concurrent use. See the package comment for C1 to C3.
//
// Only apimachinery types appear in it, so that an API server can fit it without
// knowing this package.
type Interface interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, subresource string) (runtime.Object, error)

	// List returns the items one by one, so that no one needs list types. The
	// ListMeta carries the revision and the continue token.
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error)

	// Watch yields events until ctx is over or the caller leaves the loop. An
	// error is the last thing yielded; watch.Error events are turned into it. A
	// Bookmark event carries an object of the watched type with nothing but
	// metadata.resourceVersion and annotations.
	Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error]

	// Create posts obj; with a subresource, to that of the object called name
	// (otherwise name is empty).
	Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource string) (runtime.Object, error)
	Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, subresource string) (runtime.Object, error)
	Patch(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, kind types.PatchType, patch []byte, opts metav1.PatchOptions, subresource string) (runtime.Object, error)

	// Delete asks for the deletion of an object. It returns when the server has
	// accepted that, which is not when the object is gone.
	Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error
}
