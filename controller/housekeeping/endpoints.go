package housekeeping

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/podstate"
	"github.com/sampan-io/sampan/internal/run"
)

// endpoints writes where the pods of services are, in both forms.
type endpoints struct {
	client    client.Interface
	services  *cache.Cache[*corev1.Service]
	pods      *cache.Cache[*corev1.Pod]
	slices    *cache.Cache[*discoveryv1.EndpointSlice]
	endpoints *cache.Cache[*corev1.Endpoints]
	loop      *controller.Loop
	triggers  triggers
}

// byService is the index of slices that are kept here.
const byService = "service"

func newEndpoints(opts Options, pods *cache.Cache[*corev1.Pod]) []run.Task {
	e := &endpoints{
		client:    opts.Client,
		pods:      pods,
		services:  cache.Of(opts.Caches, client.Services, nil),
		slices:    cache.Of(opts.Caches, client.EndpointSlices, cache.Indexes[*discoveryv1.EndpointSlice]{byService: serviceOf}),
		endpoints: cache.Of(opts.Caches, client.Endpoints, nil),
	}
	e.loop = controller.New(controller.Options{
		Name: "endpoints", Reconcile: e.reconcile, Workers: opts.Workers, Log: opts.Log,
		Needs: []<-chan struct{}{e.services.Ready(), pods.Ready(), e.slices.Ready(), e.endpoints.Ready()},
	})
	e.services.Subscribe(func(before, after *corev1.Service) { e.loop.Add(keyOfEither(before, after)) })
	pods.Subscribe(e.podChanged)
	e.slices.Subscribe(func(before, after *discoveryv1.EndpointSlice) {
		for _, s := range []*discoveryv1.EndpointSlice{before, after} {
			if s != nil && kept(s) {
				e.loop.Add(controller.Key{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]})
			}
		}
	})
	e.endpoints.Subscribe(func(before, after *corev1.Endpoints) { e.loop.Add(keyOfEither(before, after)) })
	return []run.Task{e.loop.Task()}
}

// keyOfEither returns the key of a changed object, of which one side may be nil.
func keyOfEither[T interface {
	comparable
	client.Object
}](before, after T) controller.Key {
	var none T
	if after == none {
		return controller.KeyOf(before)
	}
	return controller.KeyOf(after)
}

// kept says that a slice is one of those that are written here.
func kept(s *discoveryv1.EndpointSlice) bool {
	by := s.Labels[discoveryv1.LabelManagedBy]
	return by == sliceManager || by == mirrorManager
}

// serviceOf names the service that a slice is of, and who keeps the slice.
func serviceOf(s *discoveryv1.EndpointSlice) []string {
	if !kept(s) {
		return nil
	}
	return []string{s.Labels[discoveryv1.LabelManagedBy] + "/" + s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
}

// slicesOf returns the slices of a service that manager keeps.
func (e *endpoints) slicesOf(manager string, key controller.Key) []*discoveryv1.EndpointSlice {
	return e.slices.ByIndex(byService, manager+"/"+key.Namespace+"/"+key.Name)
}

// podChanged wakes the services that a change of a pod matters to.
func (e *endpoints) podChanged(before, after *corev1.Pod) {
	if before != nil && after != nil && sameBackend(before, after) {
		return
	}
	pod := after
	if pod == nil {
		pod = before
	}
	for _, svc := range e.services.List(pod.Namespace) {
		if before != nil && selects(svc, before.Labels) || after != nil && selects(svc, after.Labels) {
			e.loop.Add(controller.KeyOf(svc))
		}
	}
}

// sameBackend says that nothing changed that endpoints tell of.
func sameBackend(a, b *corev1.Pod) bool {
	return maps.Equal(a.Labels, b.Labels) &&
		podstate.Ready(a) == podstate.Ready(b) && podstate.Finished(a) == podstate.Finished(b) &&
		(a.DeletionTimestamp != nil) == (b.DeletionTimestamp != nil) &&
		a.Spec.NodeName == b.Spec.NodeName && a.Status.PodIP == b.Status.PodIP &&
		equality.Semantic.DeepEqual(a.Status.PodIPs, b.Status.PodIPs)
}

func (e *endpoints) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	svc, ok := e.services.Get(key.Namespace, key.Name)
	if !ok {
		e.triggers.forget(key)
		return controller.Result{}, errors.Join(e.removeEndpoints(ctx, key), e.mirror(ctx, key, nil))
	}
	if err := e.mirror(ctx, key, svc); err != nil {
		return controller.Result{}, err
	}
	if len(svc.Spec.Selector) == 0 || svc.Spec.Type == corev1.ServiceTypeExternalName || svc.DeletionTimestamp != nil {
		return controller.Result{}, nil // somebody else says where it leads
	}
	backends := backendsOf(svc, e.pods.List(key.Namespace))
	trigger := e.triggers.since(svc, backends)
	// The slices come first: they are what proxies read.
	err := errors.Join(e.writeSlices(ctx, svc, backends, trigger), e.writeEndpoints(ctx, svc, backends, trigger))
	return controller.Result{}, err
}

// stamp sets or removes the annotation that says which change is being told.
func stamp(annotations map[string]string, trigger time.Time) map[string]string {
	annotations = maps.Clone(annotations)
	delete(annotations, corev1.EndpointsLastChangeTriggerTime)
	if !trigger.IsZero() {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[corev1.EndpointsLastChangeTriggerTime] = trigger.UTC().Format(time.RFC3339Nano)
	}
	return annotations
}

func (e *endpoints) writeSlices(ctx context.Context, svc *corev1.Service, backends []backend, trigger time.Time) error {
	key := controller.KeyOf(svc)
	return e.apply(ctx, key, planSlices(svc, backends, e.slicesOf(sliceManager, key)), trigger)
}

// apply writes what a plan says.
func (e *endpoints) apply(ctx context.Context, key controller.Key, plan slicePlan, trigger time.Time) error {
	var errs []error
	note := func(s *discoveryv1.EndpointSlice, err error) {
		if err == nil {
			err = e.slices.Await(ctx, s.ResourceVersion)
		} else if leaving(err) {
			err = nil
		}
		errs = append(errs, err)
	}
	for _, s := range plan.create {
		s.Annotations = stamp(s.Annotations, trigger)
		note(client.EndpointSlices.Create(ctx, e.client, s))
	}
	for _, s := range plan.update {
		s.Annotations = stamp(s.Annotations, trigger)
		note(client.EndpointSlices.Update(ctx, e.client, s, ""))
	}
	for _, s := range plan.remove {
		err := client.EndpointSlices.Delete(ctx, e.client, s.Namespace, s.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(s.UID))})
		if err == nil || apierrors.IsNotFound(err) {
			err = e.slices.AwaitDeletion(ctx, s)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("endpoint slices of service %s/%s: %w", key.Namespace, key.Name, err)
	}
	return nil
}

func (e *endpoints) writeEndpoints(ctx context.Context, svc *corev1.Service, backends []backend, trigger time.Time) error {
	subsets, truncated := planEndpoints(svc, backends)
	labels := labelsFor(svc, map[string]string{labelEndpointsManaged: endpointsManager})
	old, exists := e.endpoints.Get(svc.Namespace, svc.Name)
	fresh := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name}}
	if exists {
		_, was := old.Annotations[corev1.EndpointsOverCapacity]
		if equality.Semantic.DeepEqual(old.Subsets, subsets) && maps.Equal(old.Labels, labels) && was == truncated {
			return nil
		}
		fresh = old.DeepCopy()
	}
	fresh.Subsets, fresh.Labels = subsets, labels
	fresh.Annotations = stamp(fresh.Annotations, trigger)
	delete(fresh.Annotations, corev1.EndpointsOverCapacity)
	if truncated {
		if fresh.Annotations == nil {
			fresh.Annotations = map[string]string{}
		}
		fresh.Annotations[corev1.EndpointsOverCapacity] = "truncated"
	}
	var now *corev1.Endpoints
	var err error
	if exists {
		now, err = client.Endpoints.Update(ctx, e.client, fresh, "")
	} else {
		now, err = client.Endpoints.Create(ctx, e.client, fresh)
	}
	switch {
	case leaving(err):
		return nil
	case err != nil:
		return fmt.Errorf("endpoints of service %s/%s: %w", svc.Namespace, svc.Name, err)
	}
	return e.endpoints.Await(ctx, now.ResourceVersion)
}

// removeEndpoints takes away what was written for a service that is gone. (Its slices
// go by owner reference.)
func (e *endpoints) removeEndpoints(ctx context.Context, key controller.Key) error {
	old, ok := e.endpoints.Get(key.Namespace, key.Name)
	if !ok || old.Labels[labelEndpointsManaged] != endpointsManager || old.DeletionTimestamp != nil {
		return nil
	}
	err := client.Endpoints.Delete(ctx, e.client, old.Namespace, old.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(old.UID))})
	if err == nil || apierrors.IsNotFound(err) {
		return e.endpoints.AwaitDeletion(ctx, old)
	}
	return err
}

// leaving says that a write was refused because its namespace is going away.
func leaving(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) }

// triggers remembers, for each service, when what was told of it last had happened, to
// find out which change is being told now.
type triggers struct {
	mu   sync.Mutex
	seen map[controller.Key]seen // guarded by mu
}

type seen struct {
	service time.Time
	pods    map[types.UID]time.Time
}

// since returns when the earliest of the changes happened that were not told yet, or
// the zero time if that is not known.
func (t *triggers) since(svc *corev1.Service, backends []backend) (earliest time.Time) {
	now := seen{svc.CreationTimestamp.Time, map[types.UID]time.Time{}}
	for _, b := range backends {
		if c := podstate.Condition(b.pod, corev1.PodReady); c != nil {
			now.pods[b.pod.UID] = c.LastTransitionTime.Time
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := controller.KeyOf(svc)
	old := t.seen[key]
	note := func(at, before time.Time) {
		if at.After(before) && (earliest.IsZero() || at.Before(earliest)) {
			earliest = at
		}
	}
	note(now.service, old.service)
	for uid, at := range now.pods {
		note(at, old.pods[uid])
	}
	if t.seen == nil {
		t.seen = map[controller.Key]seen{}
	}
	t.seen[key] = now
	return earliest
}

func (t *triggers) forget(key controller.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.seen, key)
}
