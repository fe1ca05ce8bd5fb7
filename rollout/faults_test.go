package rollout_test

import (
	"context"
	"errors"
	"iter"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
)

// A faultClient is a client that counts calls, and injects a fault at one of them.
type faultClient struct {
	client.Interface
	at     int    // the number of the call with the fault; 0 for none
	lost   bool   // the call is made, but its response is lost
	kill   func() // ends the program, whose further calls all fail; nil if only this answer is lost
	before func(call int)

	mu    sync.Mutex
	calls int            // guarded by mu
	verbs map[string]int // guarded by mu; calls by verb and resource
}

var errKilled = errors.New("killed")

// burn reports whether a call is made at all and whether its answer arrives.
func (f *faultClient) burn(verb string, gvr schema.GroupVersionResource) (made bool, answer error) {
	f.mu.Lock()
	f.calls++
	n := f.calls
	if f.verbs == nil {
		f.verbs = map[string]int{}
	}
	f.verbs[verb+" "+gvr.Resource]++
	f.mu.Unlock()
	if f.before != nil {
		f.before(n)
	}
	switch {
	case f.at == 0 || n < f.at, f.kill == nil && n > f.at:
		return true, nil
	case f.kill == nil:
		return f.lost, &client.UnreachableError{Server: "https://there", Err: errKilled}
	}
	f.kill()
	return f.lost && n == f.at, errKilled
}

// count returns how many calls there were.
func (f *faultClient) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

func guard[T any](f *faultClient, verb string, gvr schema.GroupVersionResource, call func() (T, error)) (T, error) {
	var zero T
	made, answer := f.burn(verb, gvr)
	if made {
		v, err := call()
		if answer == nil {
			return v, err
		}
	}
	return zero, answer
}

func (f *faultClient) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name, sub string) (runtime.Object, error) {
	return guard(f, "get", gvr, func() (runtime.Object, error) { return f.Interface.Get(ctx, gvr, namespace, name, sub) })
}

func (f *faultClient) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (items []runtime.Object, meta metav1.ListMeta, err error) {
	items, err = guard(f, "list", gvr, func() (list []runtime.Object, err error) {
		list, meta, err = f.Interface.List(ctx, gvr, namespace, opts)
		return list, err
	})
	return items, meta, err
}

func (f *faultClient) Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error] {
	if _, answer := f.burn("watch", gvr); answer != nil {
		return func(yield func(watch.Event, error) bool) { yield(watch.Event{}, answer) }
	}
	return f.Interface.Watch(ctx, gvr, namespace, opts)
}

func (f *faultClient) Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, sub string) (runtime.Object, error) {
	return guard(f, "create", gvr, func() (runtime.Object, error) {
		return f.Interface.Create(context.WithoutCancel(ctx), gvr, namespace, name, obj, opts, sub)
	})
}

func (f *faultClient) Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, sub string) (runtime.Object, error) {
	return guard(f, "update", gvr, func() (runtime.Object, error) {
		return f.Interface.Update(context.WithoutCancel(ctx), gvr, namespace, name, obj, opts, sub)
	})
}

func (f *faultClient) Patch(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, kind types.PatchType, patch []byte, opts metav1.PatchOptions, sub string) (runtime.Object, error) {
	return guard(f, "patch", gvr, func() (runtime.Object, error) {
		return f.Interface.Patch(context.WithoutCancel(ctx), gvr, namespace, name, kind, patch, opts, sub)
	})
}

func (f *faultClient) Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	_, err := guard(f, "delete", gvr, func() (any, error) {
		return nil, f.Interface.Delete(context.WithoutCancel(ctx), gvr, namespace, name, opts)
	})
	return err
}
