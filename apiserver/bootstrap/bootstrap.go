package bootstrap

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/internal/run"
)

// An API is what is used of the API server's in-process client: as one user, with
// everything that a request goes through. Returned objects are shared and not
// changed here.
type API interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, subresource string) (runtime.Object, error)
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error)
	Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error]
	Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource string) (runtime.Object, error)
	Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, subresource string) (runtime.Object, error)
	Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error
}

// A Keeper keeps the objects. Make one with [New].
type Keeper struct {
	opts  Options
	first [][]thing // made one set after the other: a namespace before what is in it
	then  []thing   // tried once before it is ready, and kept: nothing stands on it
	ready chan struct{}
}

// New returns a keeper that has not started; call [Keeper.Run].
func New(opts Options) (*Keeper, error) {
	opts, err := opts.check()
	if err != nil {
		return nil, err
	}
	k := &Keeper{opts: opts, first: [][]thing{append(namespaces(), priorities()...), opts.kubernetes().things()}, ready: make(chan struct{})}
	if len(opts.DNS) > 0 {
		k.then = opts.kubeDNS().things()
	}
	return k, nil
}

// Ready is closed when all objects are there. The service of the name server may be
// missing if somebody else has its address.
func (k *Keeper) Ready() <-chan struct{} { return k.ready }

// Run makes the objects and keeps them until ctx is over, then returns nil. It
// goes on through errors, trying again ever more slowly. It may be called
// once.
func (k *Keeper) Run(ctx context.Context) error {
	for _, things := range k.first {
		// All of a set at once, so that they share a sync of the disk.
		group := run.NewGroup(ctx, 0)
		for _, t := range things {
			group.Go(func(ctx context.Context) {
				k.persist(ctx, t.String(), func(ctx context.Context) error { return k.ensure(ctx, t) })
			})
		}
		group.Wait()
		group.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
	k.attempt(ctx)
	close(k.ready)

	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	for _, scope := range scopes(append(slices.Clone(k.first), k.then)) {
		group.Go(func(ctx context.Context) {
			for ctx.Err() == nil {
				k.persist(ctx, scope.gvr.Resource, func(ctx context.Context) error { return k.follow(ctx, scope) })
			}
		})
	}
	<-ctx.Done()
	return nil
}

// attempt makes what can wait, or takes it away if it is not wanted any more.
func (k *Keeper) attempt(ctx context.Context) {
	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	for _, t := range k.then {
		group.Go(func(ctx context.Context) {
			if err := k.ensure(ctx, t); err != nil && ctx.Err() == nil {
				k.opts.Log.WarnContext(ctx, "an object of the cluster itself could not be made", "object", t.String(), "err", err)
			}
		})
	}
	if len(k.then) == 0 {
		group.Go(func(ctx context.Context) {
			if err := k.withdrawDNS(ctx); err != nil && ctx.Err() == nil {
				k.opts.Log.WarnContext(ctx, "the service of a name server that is not there any more could not be removed", "err", err)
			}
		})
	}
	group.Wait()
}

// withdrawDNS removes the service of the name server that an earlier run had. One with a
// selector is somebody else's.
func (k *Keeper) withdrawDNS(ctx context.Context) error {
	things := k.opts.kubeDNS().things()
	if len(things) == 0 {
		return nil
	}
	name := things[0].object
	found, err := k.opts.API.Get(ctx, things[0].gvr, name.GetNamespace(), name.GetName(), "")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if svc, ok := found.(*corev1.Service); !ok || len(svc.Spec.Selector) > 0 || svc.Spec.ClusterIP != k.opts.kubeDNS().faces[0].address.String() {
		return nil
	}
	for _, t := range things {
		if err := k.opts.API.Delete(ctx, t.gvr, t.object.GetNamespace(), t.object.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// Pauses between tries: from the first, doubled up to the longest.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 10 * time.Second
)

// persist calls do until it returns nil or ctx is over.
func (k *Keeper) persist(ctx context.Context, what string, do func(context.Context) error) {
	for failures := 1; ; failures++ {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		k.opts.Log.WarnContext(ctx, "an object of the cluster itself could not be kept; trying again", "object", what, "err", err)
		if !run.Pause(ctx, run.Backoff{First: firstPause, Max: longestPause}.Pause(failures)) {
			return
		}
	}
}

// A scope is a set of things that one watch shows.
type scope struct {
	gvr       schema.GroupVersionResource
	namespace string
	things    []thing
}

func scopes(sets [][]thing) []scope {
	var all []scope
	for _, things := range sets {
	next:
		for _, t := range things {
			for i := range all {
				if all[i].gvr == t.gvr && all[i].namespace == t.object.GetNamespace() {
					all[i].things = append(all[i].things, t)
					continue next
				}
			}
			all = append(all, scope{t.gvr, t.object.GetNamespace(), []thing{t}})
		}
	}
	return all
}

// follow watches a scope and puts right what changes, until the watch ends.
func (k *Keeper) follow(ctx context.Context, s scope) error {
	opts := metav1.ListOptions{}
	if len(s.things) == 1 {
		opts.FieldSelector = "metadata.name=" + s.things[0].object.GetName()
	}
	// The revision comes first: what changes after it is told by the watch, and
	// what was before it is seen now.
	_, list, err := k.opts.API.List(ctx, s.gvr, s.namespace, opts)
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	for _, t := range s.things {
		if err := k.ensure(ctx, t); err != nil {
			return err
		}
	}
	opts.ResourceVersion = list.ResourceVersion
	for event, err := range k.opts.API.Watch(ctx, s.gvr, s.namespace, opts) {
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return nil // begin again at once
		}
		if err != nil {
			return fmt.Errorf("watching: %w", err)
		}
		o, ok := event.Object.(metav1.Object)
		if !ok || event.Type != watch.Modified && event.Type != watch.Deleted {
			continue
		}
		for _, t := range s.things {
			if t.object.GetName() != o.GetName() {
				continue
			}
			if err := k.ensure(ctx, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// ensure makes t as it should be.
func (k *Keeper) ensure(ctx context.Context, t thing) error {
	namespace, name := t.object.GetNamespace(), t.object.GetName()
	found, err := k.opts.API.Get(ctx, t.gvr, namespace, name, "")
	switch {
	case apierrors.IsNotFound(err):
		return k.create(ctx, t)
	case err != nil:
		return fmt.Errorf("getting %s: %w", t, err)
	}
	fixed, how := t.fix(found)
	switch how {
	case asItShould:
		return nil
	case update:
		_, err = k.opts.API.Update(ctx, t.gvr, namespace, name, fixed, metav1.UpdateOptions{}, "")
	case replace:
		if err = k.opts.API.Delete(ctx, t.gvr, namespace, name, metav1.DeleteOptions{}); err == nil || apierrors.IsNotFound(err) {
			return k.create(ctx, t)
		}
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return k.ensure(ctx, t) // somebody was faster; look again
	}
	if err != nil {
		return fmt.Errorf("putting right %s: %w", t, err)
	}
	k.opts.Log.InfoContext(ctx, "put right an object of the cluster itself", "object", t.String())
	return nil
}

func (k *Keeper) create(ctx context.Context, t thing) error {
	_, err := k.opts.API.Create(ctx, t.gvr, t.object.GetNamespace(), "", t.object.DeepCopyObject(), metav1.CreateOptions{}, "")
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making %s: %w", t, err)
	}
	k.opts.Log.DebugContext(ctx, "made an object of the cluster itself", "object", t.String())
	return nil
}
