package clienttest

import (
	"context"
	"iter"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/store"
)

// A Request is a request to a [Server].
type Request struct {
	Verb string // get, list, watch, create, update, patch, delete
	schema.GroupVersionResource
	Namespace, Name, Subresource string

	Object  runtime.Object        // of create and update; must not be changed
	Patch   []byte                // of patch
	Options *metav1.DeleteOptions // of delete
}

// String returns the request as a line: "update replicationcontrollers/status default/web".
func (r Request) String() string {
	s := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		s += "/" + r.Subresource
	}
	if r.Namespace != "" || r.Name != "" {
		s += " "
	}
	if r.Namespace != "" {
		s += r.Namespace + "/"
	}
	return s + r.Name
}

// Get implements [client.Interface].
func (s *Server) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name, subresource string) (runtime.Object, error) {
	err := s.enter(ctx, Request{Verb: "get", GroupVersionResource: gvr, Namespace: namespace, Name: name, Subresource: subresource})
	if err != nil {
		return nil, err
	}
	return s.answer(s.local.Get(ctx, gvr, namespace, name, subresource))
}

// answer records the objects given out.
func (s *Server) answer(obj runtime.Object, err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return s.give(obj), nil
}

// List implements [client.Interface].
func (s *Server) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	if err := s.enter(ctx, Request{Verb: "list", GroupVersionResource: gvr, Namespace: namespace}); err != nil {
		return nil, metav1.ListMeta{}, err
	}
	objs, meta, err := s.local.List(ctx, gvr, namespace, opts)
	for _, o := range objs {
		s.give(o)
	}
	return objs, meta, err
}

// Watch implements [client.Interface].
func (s *Server) Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error] {
	return func(yield func(watch.Event, error) bool) {
		if err := s.enter(ctx, Request{Verb: "watch", GroupVersionResource: gvr, Namespace: namespace}); err != nil {
			yield(watch.Event{}, err)
			return
		}
		s.mu.Lock()
		link, floor := s.link, s.floor
		s.mu.Unlock()
		if after, err := strconv.ParseUint(opts.ResourceVersion, 10, 64); err == nil && after > 0 && store.Revision(after) < floor {
			yield(watch.Event{}, expired(store.Revision(after)))
			return
		}
		both, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(link, func() { cancel(context.Cause(link)) })()
		for e, err := range s.local.Watch(both, gvr, namespace, opts) {
			if err == nil {
				s.give(e.Object)
			}
			if !yield(e, err) || err != nil {
				return
			}
			if both.Err() != nil {
				break
			}
		}
		yield(watch.Event{}, context.Cause(both))
	}
}

// Create implements [client.Interface].
func (s *Server) Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource string) (runtime.Object, error) {
	r := Request{Verb: "create", GroupVersionResource: gvr, Namespace: namespace, Name: name, Subresource: subresource, Object: obj}
	if o, ok := obj.(client.Object); ok && name == "" {
		r.Name = o.GetName()
	}
	if err := s.enter(ctx, r); err != nil {
		return nil, err
	}
	return s.answer(s.local.Create(ctx, gvr, namespace, name, obj, opts, subresource))
}

// Update implements [client.Interface].
func (s *Server) Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, subresource string) (runtime.Object, error) {
	err := s.enter(ctx, Request{Verb: "update", GroupVersionResource: gvr, Namespace: namespace, Name: name, Subresource: subresource, Object: obj})
	if err != nil {
		return nil, err
	}
	return s.answer(s.local.Update(ctx, gvr, namespace, name, obj, opts, subresource))
}

// Patch implements [client.Interface].
func (s *Server) Patch(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresource string) (runtime.Object, error) {
	err := s.enter(ctx, Request{Verb: "patch", GroupVersionResource: gvr, Namespace: namespace, Name: name, Subresource: subresource, Patch: data})
	if err != nil {
		return nil, err
	}
	return s.answer(s.local.Patch(ctx, gvr, namespace, name, kind, data, opts, subresource))
}

// Delete implements [client.Interface].
func (s *Server) Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	err := s.enter(ctx, Request{Verb: "delete", GroupVersionResource: gvr, Namespace: namespace, Name: name, Options: &opts})
	if err != nil {
		return err
	}
	return s.local.Delete(ctx, gvr, namespace, name, opts)
}
