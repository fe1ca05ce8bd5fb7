package dns

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/dns/zone"
	"github.com/sampan-io/sampan/internal/run"
)

// byService is the index of slices under "namespace/service".
const byService = "service"

// cacheOf returns the cache of a resource, and sees to it that it is run.
func (s *Server) cacheOf(r client.Resource[client.Object], indexes cache.Indexes[client.Object]) *cache.Cache[client.Object] {
	if s.opts.Caches != nil {
		return cache.Of(s.opts.Caches, r, indexes)
	}
	c := cache.New(s.opts.Client, r, cache.Options[client.Object]{Indexes: indexes, Keep: keepFacts, Log: s.opts.Log})
	s.caches = append(s.caches, run.Task{Name: r.Resource, Run: c.Run, Ready: c.Ready()})
	return c
}

// follow makes the caches.
func (s *Server) follow() {
	if s.opts.Caches != nil {
		_, others := s.opts.Caches.Or(nil, s.opts.Log)
		s.caches = run.Stage{others}
	}
	s.services = s.cacheOf(client.Resource[client.Object](client.Services), nil)
	s.services.Subscribe(func(old, now client.Object) {
		if now == nil {
			now = old
		}
		s.touch(types.NamespacedName{Namespace: now.GetNamespace(), Name: now.GetName()})
	})
	s.namespaces = s.cacheOf(client.Resource[client.Object](client.Namespaces), nil)
	s.namespaces.Subscribe(func(old, now client.Object) {
		if now != nil {
			s.zone.PutNamespace(now.GetName())
		} else {
			s.zone.RemoveNamespace(old.GetName())
		}
	})
	s.slices = s.cacheOf(client.Resource[client.Object](client.EndpointSlices), cache.Indexes[client.Object]{
		byService: func(o client.Object) []string { return []string{serviceOf(o).String()} },
	})
	s.slices.Subscribe(func(old, now client.Object) {
		for _, o := range []client.Object{old, now} {
			if o == nil {
				continue
			}
			// Other Services than headless ones have no names that depend on their
			// endpoints. If it is one, or is not known yet, it is looked at.
			name := serviceOf(o)
			if svc, known := s.services.Get(name.Namespace, name.Name); !known || headless(svc) {
				s.touch(name)
			}
		}
	})
}

// touch marks a Service as changed.
func (s *Server) touch(name types.NamespacedName) {
	s.mu.Lock()
	s.dirty[name] = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// keep tells the zone what changed.
func (s *Server) keep(ctx context.Context) error {
	for first := true; ; first = false {
		s.mu.Lock()
		dirty := s.dirty
		s.dirty = map[types.NamespacedName]bool{}
		s.mu.Unlock()
		for name := range dirty {
			s.tell(name)
		}
		if first {
			close(s.complete)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
	}
}

// tell tells the zone what a Service is now.
func (s *Server) tell(name types.NamespacedName) {
	o, ok := s.services.Get(name.Namespace, name.Name)
	if !ok {
		s.zone.Remove(name.Namespace, name.Name)
		return
	}
	svc := serviceFacts(o)
	var endpoints []*zone.Endpoints
	if svc.Headless() {
		for _, e := range s.slices.ByIndex(byService, name.String()) {
			endpoints = append(endpoints, endpointFacts(e))
		}
	}
	s.zone.Put(name.Namespace, name.Name, svc, endpoints)
}

// facts stand in a cache for an object of which only they are wanted. They are a
// twentieth of it.
type facts struct {
	metav1.Object // nil: caches ask for nothing else than what is below

	namespace, name string
	uid             types.UID
	revision        string

	service   *zone.Service // of a Service
	of        string        // of an EndpointSlice: the name of its Service
	endpoints *zone.Endpoints
}

func (f *facts) GetNamespace() string                     { return f.namespace }
func (f *facts) GetName() string                          { return f.name }
func (f *facts) GetUID() types.UID                        { return f.uid }
func (f *facts) GetResourceVersion() string               { return f.revision }
func (f *facts) GetCreationTimestamp() (none metav1.Time) { return none }
func (f *facts) GetObjectKind() schema.ObjectKind         { return schema.EmptyObjectKind }
func (f *facts) DeepCopyObject() runtime.Object           { return f }

// keepFacts returns what stands for an object.
func keepFacts(o client.Object) client.Object {
	// Copied: what is read from a server may share memory with all that came with it.
	name := o.GetName() + "/" + o.GetNamespace()
	f := &facts{
		namespace: name[len(o.GetName())+1:], name: name[:len(o.GetName())],
		uid: types.UID(strings.Clone(string(o.GetUID()))), revision: strings.Clone(o.GetResourceVersion()),
	}
	switch o := o.(type) {
	case *corev1.Service:
		f.service = zone.NewService(o)
	case *discoveryv1.EndpointSlice:
		f.of, f.endpoints = strings.Clone(o.Labels[discoveryv1.LabelServiceName]), zone.NewEndpoints(o)
	}
	return f
}

func serviceOf(o client.Object) types.NamespacedName {
	name := types.NamespacedName{Namespace: o.GetNamespace()}
	if f, ok := o.(*facts); ok {
		name.Name = f.of
	} else {
		name.Name = o.GetLabels()[discoveryv1.LabelServiceName]
	}
	return name
}

func headless(o client.Object) bool {
	if f, ok := o.(*facts); ok {
		return f.service.Headless()
	}
	svc, ok := o.(*corev1.Service)
	return ok && svc.Spec.ClusterIP == corev1.ClusterIPNone
}

func serviceFacts(o client.Object) *zone.Service {
	switch o := o.(type) {
	case *facts:
		return o.service
	case *corev1.Service:
		return zone.NewService(o)
	}
	return nil
}

func endpointFacts(o client.Object) *zone.Endpoints {
	switch o := o.(type) {
	case *facts:
		return o.endpoints
	case *discoveryv1.EndpointSlice:
		return zone.NewEndpoints(o)
	}
	return new(zone.Endpoints)
}
