package simulated

import (
	"context"
	"iter"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
)

// A Link is a node's connection to the API server, which can be cut and restored. While
// it is cut, requests and watches do not fail but hang, as on a network that loses all
// packets; they continue when it is restored. It is safe for concurrent use.
type Link struct {
	to client.Interface

	mu   sync.Mutex
	back chan struct{} // guarded by mu; nil unless the link is cut; closed when it is restored
}

var _ client.Interface = (*Link)(nil)

// NewLink returns a link that is not cut.
func NewLink(to client.Interface) *Link { return &Link{to: to} }

// Set cuts the link, or restores it.
func (l *Link) Set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case cut && l.back == nil:
		l.back = make(chan struct{})
	case !cut && l.back != nil:
		close(l.back)
		l.back = nil
	}
}

// whole waits until the link is not cut.
func (l *Link) whole(ctx context.Context) error {
	for {
		l.mu.Lock()
		back := l.back
		l.mu.Unlock()
		if back == nil {
			return nil
		}
		select {
		case <-back:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Get implements client.Interface.
func (l *Link) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, subresource string) (runtime.Object, error) {
	if err := l.whole(ctx); err != nil {
		return nil, err
	}
	return l.to.Get(ctx, gvr, namespace, name, subresource)
}

// List implements client.Interface.
func (l *Link) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	if err := l.whole(ctx); err != nil {
		return nil, metav1.ListMeta{}, err
	}
	return l.to.List(ctx, gvr, namespace, opts)
}

// Watch implements client.Interface.
func (l *Link) Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error] {
	return func(yield func(watch.Event, error) bool) {
		if err := l.whole(ctx); err != nil {
			yield(watch.Event{}, err)
			return
		}
		for e, err := range l.to.Watch(ctx, gvr, namespace, opts) {
			if cut := l.whole(ctx); cut != nil {
				yield(watch.Event{}, cut)
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Create implements client.Interface.
func (l *Link) Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource string) (runtime.Object, error) {
	if err := l.whole(ctx); err != nil {
		return nil, err
	}
	return l.to.Create(ctx, gvr, namespace, name, obj, opts, subresource)
}

// Update implements client.Interface.
func (l *Link) Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, subresource string) (runtime.Object, error) {
	if err := l.whole(ctx); err != nil {
		return nil, err
	}
	return l.to.Update(ctx, gvr, namespace, name, obj, opts, subresource)
}

// Patch implements client.Interface.
func (l *Link) Patch(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, kind types.PatchType, patch []byte, opts metav1.PatchOptions, subresource string) (runtime.Object, error) {
	if err := l.whole(ctx); err != nil {
		return nil, err
	}
	return l.to.Patch(ctx, gvr, namespace, name, kind, patch, opts, subresource)
}

// Delete implements client.Interface.
func (l *Link) Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	if err := l.whole(ctx); err != nil {
		return err
	}
	return l.to.Delete(ctx, gvr, namespace, name, opts)
}
