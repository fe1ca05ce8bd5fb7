package dns

import (
	"context"
	"encoding/hex"
	"math"
	"slices"
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

// byService is the index of slices by the name of their Service, without namespace: a substring of
// the facts of a slice, which needs no memory.
const byService = "service"

// cacheOf returns the cache of a resource, and adds it to the caches that run.
func (s *Server) cacheOf(r client.Resource[client.Object], indexes cache.Indexes[client.Object]) *cache.Cache[client.Object] {
	if s.opts.Caches != nil {
		return cache.Of(s.opts.Caches, r, indexes)
	}
	c := cache.New(s.opts.Client, r, cache.Options[client.Object]{Indexes: indexes, Keep: keepFacts, Log: s.opts.Log})
	s.caches = append(s.caches, run.Task{Name: r.Resource, Run: c.Run, Ready: c.Ready()})
	return c
}

// follow creates the caches.
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
		byService: func(o client.Object) []string { return []string{serviceOf(o).Name} },
	})
	s.slices.Subscribe(func(old, now client.Object) {
		for _, o := range []client.Object{old, now} {
			if o == nil {
				continue
			}
			// Endpoints have names if their Service is headless or if they have a hostname.
			// Other slices need no update, unless their Service is not known yet.
			name := serviceOf(o)
			if svc, known := s.services.Get(name.Namespace, name.Name); !known || headless(svc) || hostnames(o) {
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
	s.wake.Ring()
}

// keep updates the zone with changes until ctx is cancelled.
func (s *Server) keep(ctx context.Context) error {
	for first := true; ; first = false {
		s.mu.Lock()
		dirty := s.dirty
		s.dirty = map[types.NamespacedName]bool{}
		s.mu.Unlock()
		for name := range dirty {
			run.Shield(s.opts.Log, func() { s.update(name) }, "service", name)
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

// update updates a Service in the zone.
func (s *Server) update(name types.NamespacedName) {
	o, ok := s.services.Get(name.Namespace, name.Name)
	if !ok {
		s.zone.Remove(name.Namespace, name.Name)
		return
	}
	svc := serviceFacts(o)
	var endpoints []*zone.Endpoints
	for _, e := range s.slices.ByIndex(byService, name.Name) {
		if e.GetNamespace() == name.Namespace && (svc.Headless() || hostnames(e)) {
			endpoints = append(endpoints, endpointFacts(e))
		}
	}
	s.zone.Put(name.Namespace, name.Name, svc, endpoints)
}

// facts replace an object in a cache, with a thirtieth of its size: one string with all parts that
// are needed, one after the other.
type facts struct {
	metav1.Object // nil: caches use no other methods than those below

	text  string
	ends  [4]uint16     // of name, namespace, revision and UID in text; then come the parts of a slice
	of    uint8         // of an EndpointSlice: length of the name of its Service, which comes first there
	named bool          // of an EndpointSlice: an endpoint has a hostname
	about *zone.Service // of a Service
}

func (f *facts) part(i int) string {
	if i == 0 {
		return f.text[:f.ends[0]]
	}
	return f.text[f.ends[i-1]:f.ends[i]]
}

func (f *facts) GetName() string                          { return f.part(0) }
func (f *facts) GetNamespace() string                     { return f.part(1) }
func (f *facts) GetResourceVersion() string               { return f.part(2) }
func (f *facts) GetUID() types.UID                        { return types.UID(f.part(3)) }
func (f *facts) GetCreationTimestamp() (none metav1.Time) { return none }
func (f *facts) GetDeletionTimestamp() *metav1.Time       { return nil }
func (f *facts) GetObjectKind() schema.ObjectKind         { return schema.EmptyObjectKind }
func (f *facts) DeepCopyObject() runtime.Object           { return f }

// said returns the parts of a slice: the name of its Service, and its packed endpoints.
func (f *facts) said() (service, endpoints string) {
	rest := f.text[f.ends[3]:]
	return rest[:f.of], rest[f.of:]
}

// keepFacts returns the facts of an object. It copies everything: an object from a list may share
// memory with the whole list.
func keepFacts(o client.Object) client.Object {
	f := &facts{}
	var text []byte
	for i, part := range []string{o.GetName(), o.GetNamespace(), o.GetResourceVersion(), short(o.GetUID())} {
		text = append(text, part...)
		f.ends[i] = uint16(len(text))
	}
	switch o := o.(type) {
	case *corev1.Service:
		f.about = zone.NewService(o)
	case *discoveryv1.EndpointSlice:
		of := o.Labels[discoveryv1.LabelServiceName]
		if len(of) > math.MaxUint8 {
			of = "" // no Service has such a name
		}
		f.of = uint8(len(of))
		text = append(text, of...)
		if f.named = hostnames(o); f.named || mayBeNamed(o) {
			text = zone.NewEndpoints(o).AppendTo(text)
		}
	}
	f.text = string(text)
	return f
}

// hostnames reports whether an endpoint of a slice has a hostname.
func hostnames(o client.Object) bool {
	switch o := o.(type) {
	case *facts:
		return o.named
	case *discoveryv1.EndpointSlice:
		return slices.ContainsFunc(o.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Hostname != nil })
	}
	return false
}

// mayBeNamed reports whether a slice may be of a headless Service, whose endpoints have names. The
// EndpointSlice controller labels slices of headless Services with selectors.
func mayBeNamed(s *discoveryv1.EndpointSlice) bool {
	_, headless := s.Labels[corev1.IsHeadlessService]
	return headless || s.Labels[discoveryv1.LabelManagedBy] != "endpointslice-controller.k8s.io"
}

// short returns a short form of a UID: its sixteen bytes, if it is a UUID. Caches only compare
// UIDs.
func short(uid types.UID) string {
	const dashed, plain = 36, 32
	text := string(uid)
	digits := strings.ReplaceAll(text, "-", "")
	b, err := hex.DecodeString(digits)
	if err != nil || len(text) != dashed || len(digits) != plain || text != strings.ToLower(text) {
		return text[:min(len(text), math.MaxUint8)]
	}
	return string(b)
}

func serviceOf(o client.Object) types.NamespacedName {
	name := types.NamespacedName{Namespace: o.GetNamespace()}
	if f, ok := o.(*facts); ok {
		name.Name, _ = f.said()
	} else {
		name.Name = o.GetLabels()[discoveryv1.LabelServiceName]
	}
	return name
}

func headless(o client.Object) bool {
	if f, ok := o.(*facts); ok {
		return f.about.Headless()
	}
	svc, ok := o.(*corev1.Service)
	return ok && svc.Spec.ClusterIP == corev1.ClusterIPNone
}

func serviceFacts(o client.Object) *zone.Service {
	switch o := o.(type) {
	case *facts:
		return o.about
	case *corev1.Service:
		return zone.NewService(o)
	}
	return nil
}

func endpointFacts(o client.Object) *zone.Endpoints {
	switch o := o.(type) {
	case *facts:
		_, packed := o.said()
		return zone.ReadEndpoints(packed)
	case *discoveryv1.EndpointSlice:
		return zone.NewEndpoints(o)
	}
	return new(zone.Endpoints)
}
