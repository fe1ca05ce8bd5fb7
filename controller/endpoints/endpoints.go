package endpoints

import (
	"cmp"
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
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
)

// endpoints writes where the pods of services are, in both forms.
type endpoints struct {
	client    client.Interface            // for Endpoints and Events
	writers   map[string]client.Interface // for slices, by the manager that their label names
	services  *cache.Cache[*corev1.Service]
	pods      *cache.Cache[*corev1.Pod]
	slices    *cache.Cache[*discoveryv1.EndpointSlice]
	endpoints *cache.Cache[*corev1.Endpoints]
	nodes     *cache.Cache[*corev1.Node]
	members   *members
	loop      *controller.Loop
	events    *client.Recorder
	triggers  triggers
	unmatched *unmatched
	hinted    hinted
}

// byService is the index of slices that are kept here.
const byService = "service"

// byNode is the index of pods by the name of their node.
const byNode = "node"

func nodeOf(pod *corev1.Pod) []string {
	if pod.Spec.NodeName == "" {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

// Tasks returns the controller. Its tasks must run together, as one stage.
func Tasks(config controller.Config) []run.Task {
	config, caches := config.WithDefaults()
	pods := cache.Of(config.Caches, client.Pods, cache.Indexes[*corev1.Pod]{byNode: nodeOf})
	e := &endpoints{
		client: config.For("endpoint-controller").Client,
		writers: map[string]client.Interface{
			sliceManager:  config.For("endpointslice-controller").Client,
			mirrorManager: config.For("endpointslicemirroring-controller").Client,
		},
		pods:      pods,
		services:  cache.Of(config.Caches, client.Services, cache.Indexes[*corev1.Service]{bySelector: selectorOf, byMode: modeOf}),
		nodes:     cache.Of(config.Caches, client.Nodes, nil),
		slices:    cache.Of(config.Caches, client.EndpointSlices, cache.Indexes[*discoveryv1.EndpointSlice]{byService: serviceOf}),
		endpoints: cache.Of(config.Caches, client.Endpoints, nil),
	}
	e.events = client.NewRecorder(e.client, "endpoint-controller", "", config.Log)
	e.unmatched = &unmatched{events: e.events, client: e.client, empty: map[controller.Key]*emptiness{}}
	e.members = &members{services: e.services, pods: pods}
	e.loop = controller.New(controller.Options{
		Name: "endpoints", Reconcile: e.reconcile, Workers: config.Workers, Log: config.Log,
		Object: controller.ObjectOf(e.services), Quarantine: config.Quarantine,
		Needs: []<-chan struct{}{e.services.Ready(), pods.Ready(), e.slices.Ready(), e.endpoints.Ready(), e.nodes.Ready()},
	})
	e.services.Subscribe(func(before, after *corev1.Service) {
		e.members.serviceChanged(before, after)
		e.loop.Add(controller.KeyOfEither(before, after))
	})
	e.nodes.Subscribe(e.nodeChanged)
	pods.Subscribe(e.podChanged)
	e.slices.Subscribe(func(before, after *discoveryv1.EndpointSlice) {
		for _, s := range []*discoveryv1.EndpointSlice{before, after} {
			if s != nil && kept(s) {
				e.loop.Add(controller.Key{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]})
			}
		}
	})
	e.endpoints.Subscribe(func(before, after *corev1.Endpoints) { e.loop.Add(controller.KeyOfEither(before, after)) })
	return []run.Task{caches, {Name: "endpoints-events", Run: e.events.Run}, e.loop.Task()}
}

// kept reports whether this controller writes a slice.
func kept(s *discoveryv1.EndpointSlice) bool {
	by := s.Labels[discoveryv1.LabelManagedBy]
	return by == sliceManager || by == mirrorManager
}

// serviceOf returns the index value of a slice: its manager and its service.
func serviceOf(s *discoveryv1.EndpointSlice) []string {
	if !kept(s) {
		return nil
	}
	return []string{s.Labels[discoveryv1.LabelManagedBy] + "/" + s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
}

// writer returns the client of the controller that a slice is from.
func (e *endpoints) writer(s *discoveryv1.EndpointSlice) client.Interface {
	return e.writers[s.Labels[discoveryv1.LabelManagedBy]]
}

// slicesOf returns the slices of a service that manager keeps.
func (e *endpoints) slicesOf(manager string, key controller.Key) []*discoveryv1.EndpointSlice {
	return e.slices.ByIndex(byService, manager+"/"+key.Namespace+"/"+key.Name)
}

// podChanged wakes the services that a change of a pod matters to.
func (e *endpoints) podChanged(before, after *corev1.Pod) {
	e.members.podChanged(before, after)
	if before != nil && after != nil && sameBackend(before, after) {
		return
	}
	for _, pod := range []*corev1.Pod{before, after} {
		if pod == nil || pod == before && after != nil && maps.Equal(before.Labels, after.Labels) {
			continue
		}
		for _, svc := range e.members.servicesFor(pod.Namespace, pod.Labels) {
			e.loop.Add(controller.KeyOf(svc))
		}
	}
}

// byMode is the index of services that ask for hints by the CPU of zones, under autoMode.
const (
	byMode   = "topology mode"
	autoMode = "Auto"
)

func modeOf(svc *corev1.Service) []string {
	if selecting(svc) && byTopology(svc) {
		return []string{autoMode}
	}
	return nil
}

// nodeChanged queues the services that a change of a node affects: services with pods on it if its zone has changed, and
// services with hints by the CPU of zones.
func (e *endpoints) nodeChanged(before, after *corev1.Node) {
	if zoneOf(before) != zoneOf(after) {
		for _, pod := range e.pods.ByIndex(byNode, controller.KeyOfEither(before, after).Name) {
			for _, svc := range e.members.servicesFor(pod.Namespace, pod.Labels) {
				e.loop.Add(controller.KeyOf(svc))
			}
		}
	}
	if before == nil || after == nil || !sameShare(before, after) {
		for _, svc := range e.services.ByIndex(byMode, autoMode) {
			e.loop.Add(controller.KeyOf(svc))
		}
	}
}

func zoneOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	return node.Labels[corev1.LabelTopologyZone]
}

// sameShare reports whether two states of a node count the same for its zone.
func sameShare(a, b *corev1.Node) bool {
	x, xWhy := sharesOf([]*corev1.Node{a})
	y, yWhy := sharesOf([]*corev1.Node{b})
	return xWhy == yWhy && maps.Equal(x, y)
}

// where returns the locations of nodes.
func (e *endpoints) where() topology {
	return topology{
		zone: func(name string) string {
			node, _ := e.nodes.Get("", name)
			return zoneOf(node)
		},
		shares: func() (map[string]int64, string) { return sharesOf(e.nodes.List("")) },
	}
}

// sameBackend reports whether two states of a pod result in the same endpoint.
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
		e.unmatched.forget(key)
		e.hinted.forget(key)
		return controller.Result{}, errors.Join(e.removeEndpoints(ctx, key), e.mirror(ctx, key, nil))
	}
	if err := e.mirror(ctx, key, svc); err != nil {
		return controller.Result{}, err
	}
	if !selecting(svc) {
		e.unmatched.forget(key)
		return controller.Result{}, nil // a user writes its Endpoints
	}
	pods := e.members.podsOf(svc)
	backends := backendsOf(svc, pods)
	trigger := e.triggers.since(svc, backends)
	// The slices come first: they are what proxies read.
	err := errors.Join(e.writeSlices(ctx, svc, backends, trigger), e.writeEndpoints(ctx, svc, backends, trigger))
	if err != nil {
		return controller.Result{}, err
	}
	again, err := e.unmatched.look(ctx, svc, pods, func() []*corev1.Pod { return e.pods.List(svc.Namespace) })
	return controller.Result{After: again}, err
}

// stamp sets or removes the annotation with the time of the change that is written.
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
	have := e.slicesOf(sliceManager, key)
	plan := planSlices(svc, backends, have, e.where())
	if svc.DeletionTimestamp != nil {
		plan.create = nil // it would delay the deletion of the old ones
	}
	if err := e.apply(ctx, key, plan, trigger); err != nil {
		return err
	}
	e.hinted.report(svc, plan.hints, have, e.events)
	return nil
}

// hinted remembers the last event about the hints that a service asks for by its topology mode.
type hinted struct {
	mu       sync.Mutex
	reported map[controller.Key]map[discoveryv1.AddressType]string // guarded by mu; why there are none, or hintsGiven
}

const hintsGiven = "given"

// report writes an event when a service gets hints or cannot have them any more.
func (h *hinted) report(svc *corev1.Service, missing map[discoveryv1.AddressType]string, had []*discoveryv1.EndpointSlice, events *client.Recorder) {
	key := controller.KeyOf(svc)
	if !byTopology(svc) {
		h.forget(key)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, family := range families(svc) {
		now, before := cmp.Or(missing[family], hintsGiven), h.reported[key][family]
		if now == before || now == hintsGiven && before == "" && len(hintsOf(had)) > 0 {
			continue
		}
		if h.reported == nil {
			h.reported = map[controller.Key]map[discoveryv1.AddressType]string{}
		}
		if h.reported[key] == nil {
			h.reported[key] = map[discoveryv1.AddressType]string{}
		}
		h.reported[key][family] = now
		if now != hintsGiven {
			events.Event(svc, corev1.EventTypeWarning, "TopologyAwareHintsDisabled", "%s endpoints have no topology hints: %s", family, now)
		} else if before != "" {
			events.Event(svc, corev1.EventTypeNormal, "TopologyAwareHintsEnabled", "%s endpoints have topology hints", family)
		}
	}
}

func (h *hinted) forget(key controller.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.reported, key)
}

// apply carries out a plan.
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
		note(client.EndpointSlices.Create(ctx, e.writer(s), s))
	}
	for _, s := range plan.update {
		s.Annotations = stamp(s.Annotations, trigger)
		note(client.EndpointSlices.Update(ctx, e.writer(s), s, ""))
	}
	for _, s := range plan.remove {
		err := client.EndpointSlices.Delete(ctx, e.writer(s), s.Namespace, s.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(s.UID))})
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
	if !exists && svc.DeletionTimestamp != nil {
		return nil
	}
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

// removeEndpoints deletes the Endpoints of a service that is gone. (Its slices
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

// triggers remembers, for each service, the times of the changes that were written last, to find out which change is being
// written now.
type triggers struct {
	mu   sync.Mutex
	seen map[controller.Key]seen // guarded by mu
}

type seen struct {
	service time.Time
	pods    map[types.UID]time.Time
}

// since returns the time of the earliest change that has not been written yet, or the zero time if that is not known. If
// nothing has been written for a service yet, it is the time of its creation, because its pods may be much older.
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
	old, known := t.seen[key]
	note := func(at, before time.Time) {
		if at.After(before) && (earliest.IsZero() || at.Before(earliest)) {
			earliest = at
		}
	}
	note(now.service, old.service)
	if known {
		for uid, at := range now.pods {
			note(at, old.pods[uid])
		}
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
