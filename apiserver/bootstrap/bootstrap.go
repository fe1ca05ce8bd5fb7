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

// An API is the part of the API server's in-process client that a Reconciler uses, as one user. Returned objects are shared and not
// changed here.
type API interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, subresource string) (runtime.Object, error)
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error)
	Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error]
	Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource string) (runtime.Object, error)
	Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, subresource string) (runtime.Object, error)
	Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error
}

// A Reconciler creates the objects and keeps them as they should be. Make one with [New].
type Reconciler struct {
	opts  Options
	first [][]thing // made one set after the other: a namespace before its objects
	then  []thing   // tried once before it is ready, and kept: nothing stands on it
	tried bool      // the changes of Options.Roles
	ready chan struct{}
	again run.Bell // Options.Authentication or Options.Published return something else
}

// New returns a Reconciler. It does not start goroutines; call [Reconciler.Run].
func New(opts Options) (*Reconciler, error) {
	opts, err := opts.check()
	if err != nil {
		return nil, err
	}
	r := &Reconciler{
		opts: opts,
		first: [][]thing{
			slices.Concat(namespaces(), priorities(), levels(), []thing{opts.serviceCIDR()}),
			slices.Concat(opts.kubernetes().things(), schemas(), []thing{tokenTracking(time.Now())}, opts.published()),
		},
		ready: make(chan struct{}),
		again: run.NewBell(),
	}
	if len(opts.DNS) > 0 {
		r.then = opts.kubeDNS().things()
	}
	return r, nil
}

// Ready is closed when all objects exist. The service of the name server may be missing if another
// service has its address.
func (r *Reconciler) Ready() <-chan struct{} { return r.ready }

// Refresh has the ConfigMaps of Options.Authentication and Options.Published written again. It does not block.
func (r *Reconciler) Refresh() {
	r.again.Ring()
}

// Run makes the objects and keeps them until ctx is over, then returns nil. It
// goes on through errors, trying again ever more slowly. It may be called
// once.
func (r *Reconciler) Run(ctx context.Context) error {
	for _, things := range r.first {
		// All of a set at once, so that they share a sync of the disk.
		group := run.NewGroup(ctx, 0)
		for _, t := range things {
			group.Go(func(ctx context.Context) {
				r.persist(ctx, t.String(), func(ctx context.Context) error { return r.ensure(ctx, t) })
			})
		}
		group.Wait()
		group.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
	r.persist(ctx, "roles", r.reconcileRoles)
	if ctx.Err() != nil {
		return nil
	}
	r.attempt(ctx)
	close(r.ready)

	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	for _, scope := range scopes(append(slices.Clone(r.first), r.then)) {
		group.Go(func(ctx context.Context) {
			for ctx.Err() == nil {
				r.persist(ctx, scope.gvr.Resource, func(ctx context.Context) error { return r.follow(ctx, scope) })
			}
		})
	}
	for {
		select {
		case <-r.again:
			for _, t := range r.opts.published() {
				r.persist(ctx, t.String(), func(ctx context.Context) error { return r.ensure(ctx, t) })
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// attempt makes objects that can wait, or deletes those not wanted any more.
func (r *Reconciler) attempt(ctx context.Context) {
	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	for _, t := range r.then {
		group.Go(func(ctx context.Context) {
			if err := r.ensure(ctx, t); err != nil && ctx.Err() == nil {
				r.opts.Log.WarnContext(ctx, "cannot create a system object", "object", t.String(), "err", err)
			}
		})
	}
	if len(r.then) == 0 {
		group.Go(func(ctx context.Context) {
			if err := r.withdrawDNS(ctx); err != nil && ctx.Err() == nil {
				r.opts.Log.WarnContext(ctx, "cannot delete the service of the name server", "err", err)
			}
		})
	}
	group.Wait()
}

// withdrawDNS deletes the service of the name server that an earlier run has made. A service with a
// selector was made by a user, and stays.
func (r *Reconciler) withdrawDNS(ctx context.Context) error {
	things := r.opts.kubeDNS().things()
	if len(things) == 0 {
		return nil
	}
	name := things[0].object
	found, err := r.opts.API.Get(ctx, things[0].gvr, name.GetNamespace(), name.GetName(), "")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if svc, ok := found.(*corev1.Service); !ok || len(svc.Spec.Selector) > 0 || svc.Spec.ClusterIP != r.opts.kubeDNS().faces[0].address.String() {
		return nil
	}
	for _, t := range things {
		if err := r.opts.API.Delete(ctx, t.gvr, t.object.GetNamespace(), t.object.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
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
func (r *Reconciler) persist(ctx context.Context, what string, do func(context.Context) error) {
	for failures := 1; ; failures++ {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		r.opts.Log.WarnContext(ctx, "cannot restore a system object; trying again", "object", what, "err", err)
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
func (r *Reconciler) follow(ctx context.Context, s scope) error {
	opts := metav1.ListOptions{}
	if len(s.things) == 1 { // otherwise the few that are not ours are filtered out below
		opts.FieldSelector = "metadata.name=" + s.things[0].object.GetName()
	}
	// Read the revision first: the watch reports every change after it, and the list shows every
	// change before it.
	_, list, err := r.opts.API.List(ctx, s.gvr, s.namespace, opts)
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	for _, t := range s.things {
		if err := r.ensure(ctx, t); err != nil {
			return err
		}
	}
	opts.ResourceVersion = list.ResourceVersion
	for event, err := range r.opts.API.Watch(ctx, s.gvr, s.namespace, opts) {
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
			if err := r.ensure(ctx, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// ensure makes t as it should be.
func (r *Reconciler) ensure(ctx context.Context, t thing) error {
	namespace, name := t.object.GetNamespace(), t.object.GetName()
	found, err := r.opts.API.Get(ctx, t.gvr, namespace, name, "")
	switch {
	case apierrors.IsNotFound(err):
		return r.create(ctx, t)
	case err != nil:
		return fmt.Errorf("getting %s: %w", t, err)
	}
	fixed, how := t.fix(found)
	switch how {
	case asItShould:
		return nil
	case update:
		_, err = r.opts.API.Update(ctx, t.gvr, namespace, name, fixed, metav1.UpdateOptions{FieldManager: t.manager}, "")
	case replace:
		if err = r.opts.API.Delete(ctx, t.gvr, namespace, name, metav1.DeleteOptions{}); err == nil || apierrors.IsNotFound(err) {
			return r.create(ctx, t)
		}
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return r.ensure(ctx, t) // another client was faster: look again
	}
	if err != nil {
		return fmt.Errorf("restoring %s: %w", t, err)
	}
	r.opts.Log.InfoContext(ctx, "restored a system object", "object", t.String())
	return nil
}

func (r *Reconciler) create(ctx context.Context, t thing) error {
	object := t.object.DeepCopyObject()
	// The wanted object may have changed since this program started.
	if fixed, how := t.fix(object); how == update {
		object = fixed
	}
	_, err := r.opts.API.Create(ctx, t.gvr, t.object.GetNamespace(), "", object, metav1.CreateOptions{FieldManager: t.manager}, "")
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making %s: %w", t, err)
	}
	r.opts.Log.DebugContext(ctx, "created a system object", "object", t.String())
	return nil
}
