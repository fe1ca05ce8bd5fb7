package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/dns/forward"
	"github.com/sampan-io/sampan/dns/zone"
	"github.com/sampan-io/sampan/internal/run"
)

// Options configures a [Server]. Client, Sockets and Upstream are required.
type Options struct {
	Client client.Interface

	// Sockets are where it is asked. Run closes them.
	Sockets *Sockets

	// Upstream returns whom to ask for names outside of the cluster; without any,
	// missing says why, for users. It must be quick.
	Upstream func() (servers []netip.AddrPort, missing string)

	Domain string        // of the cluster; "" means "cluster.local"
	TTL    time.Duration // of the cluster's records; 0 means 5 s

	// Networks are those of pods and services: the names of their addresses are ours.
	Networks []netip.Prefix

	// Web is where /metrics, /ready and /health are served over HTTP; nil means
	// nowhere. Run closes it.
	Web net.Listener

	// Trim says that the client makes objects for us alone, so that only what names
	// need of them is to be kept.
	Trim bool

	Log *slog.Logger // nil means slog.Default
}

// A Server answers until it is told to stop.
type Server struct {
	opts     Options
	zone     *zone.Zone
	upstream *forward.Forwarder
	count    *counters

	services   *cache.Cache[*corev1.Service]
	slices     *cache.Cache[*discoveryv1.EndpointSlice]
	namespaces *cache.Cache[*corev1.Namespace]

	complete chan struct{} // closed when the zone is what the cluster was at the start
	wake     chan struct{} // capacity 1

	mu    sync.Mutex
	dirty map[types.NamespacedName]bool // guarded by mu; Services to look at
}

// byService is the index of slices under "namespace/service".
const byService = "service"

// New returns a server that has not started; call [Server.Run].
func New(o Options) (*Server, error) {
	if o.Client == nil || o.Sockets == nil || o.Upstream == nil {
		return nil, errors.New("dns: Options.Client, Sockets and Upstream are required")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Server{
		opts: o, complete: make(chan struct{}), wake: make(chan struct{}, 1),
		dirty: map[types.NamespacedName]bool{},
	}
	at := o.Sockets.Addr()
	var err error
	s.zone, err = zone.New(zone.Options{Domain: o.Domain, TTL: o.TTL, Server: []netip.Addr{at.Addr()}, Networks: o.Networks}, uint32(time.Now().Unix()))
	if err != nil {
		return nil, fmt.Errorf("dns: %w", err)
	}
	if s.upstream, err = forward.New(forward.Options{Servers: o.Upstream, Own: []netip.AddrPort{at}, Log: o.Log}); err != nil {
		return nil, fmt.Errorf("dns: %w", err)
	}
	s.count = newCounters(s)
	s.follow()
	return s, nil
}

// follow makes the caches.
func (s *Server) follow() {
	services := cache.Options[*corev1.Service]{Log: s.opts.Log}
	slices := cache.Options[*discoveryv1.EndpointSlice]{
		Log: s.opts.Log,
		Indexes: map[string]func(*discoveryv1.EndpointSlice) []string{
			byService: func(e *discoveryv1.EndpointSlice) []string { return []string{serviceOf(e).String()} },
		},
	}
	namespaces := cache.Options[*corev1.Namespace]{Log: s.opts.Log}
	if s.opts.Trim {
		services.Keep, slices.Keep, namespaces.Keep = trimService, trimSlice, trimNamespace
	}
	s.services = cache.New(s.opts.Client, client.Services, services)
	s.services.Subscribe(func(old, now *corev1.Service) {
		if now == nil {
			now = old
		}
		s.touch(types.NamespacedName{Namespace: now.Namespace, Name: now.Name})
	})
	s.slices = cache.New(s.opts.Client, client.EndpointSlices, slices)
	s.slices.Subscribe(func(old, now *discoveryv1.EndpointSlice) {
		for _, e := range []*discoveryv1.EndpointSlice{old, now} {
			if e == nil {
				continue
			}
			// Other Services than headless ones have no names that depend on their
			// endpoints. If it is one, or is not known yet, it is looked at.
			if svc, known := s.services.Get(e.Namespace, e.Labels[discoveryv1.LabelServiceName]); !known || svc.Spec.ClusterIP == corev1.ClusterIPNone {
				s.touch(serviceOf(e))
			}
		}
	})
	s.namespaces = cache.New(s.opts.Client, client.Namespaces, namespaces)
	s.namespaces.Subscribe(func(old, now *corev1.Namespace) {
		if now != nil {
			s.zone.PutNamespace(now.Name)
		} else {
			s.zone.RemoveNamespace(old.Name)
		}
	})
}

func serviceOf(e *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: e.Namespace, Name: e.Labels[discoveryv1.LabelServiceName]}
}

// Ready is closed when the zone is what the cluster was when the server started, and
// questions are answered.
func (s *Server) Ready() <-chan struct{} { return s.complete }

// Run answers until ctx is over, then returns nil. It returns an error if a socket
// breaks. It goes on while the API server is away, with what it knows. It may be called
// once.
func (s *Server) Run(ctx context.Context) error {
	first := run.Stage{
		{Name: "services", Run: s.services.Run, Ready: s.services.Ready()},
		{Name: "endpointslices", Run: s.slices.Run, Ready: s.slices.Ready()},
		{Name: "namespaces", Run: s.namespaces.Run, Ready: s.namespaces.Ready()},
		{Name: "questions", Run: s.serve},
	}
	if s.opts.Web != nil {
		first = append(first, run.Task{Name: "web", Run: s.serveWeb})
	}
	return run.Stages(ctx, first, run.Stage{{Name: "zone", Run: s.keep}})
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
	svc, ok := s.services.Get(name.Namespace, name.Name)
	if !ok {
		s.zone.Remove(name.Namespace, name.Name)
		return
	}
	var endpoints []*discoveryv1.EndpointSlice
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		endpoints = s.slices.ByIndex(byService, name.String())
	}
	s.zone.Put(svc, endpoints)
}

// trimmed returns of an object's metadata what a cache needs.
func trimmed(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

func trimService(svc *corev1.Service) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: trimmed(&svc.ObjectMeta),
		Spec: corev1.ServiceSpec{
			Type: svc.Spec.Type, ClusterIP: svc.Spec.ClusterIP, ClusterIPs: svc.Spec.ClusterIPs, ExternalName: svc.Spec.ExternalName,
			Ports: svc.Spec.Ports, PublishNotReadyAddresses: svc.Spec.PublishNotReadyAddresses,
		},
	}
}

func trimSlice(e *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	t := &discoveryv1.EndpointSlice{ObjectMeta: trimmed(&e.ObjectMeta), AddressType: e.AddressType, Ports: e.Ports}
	if name, ok := e.Labels[discoveryv1.LabelServiceName]; ok {
		t.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	}
	t.Endpoints = make([]discoveryv1.Endpoint, len(e.Endpoints))
	for i := range e.Endpoints {
		from := &e.Endpoints[i]
		t.Endpoints[i] = discoveryv1.Endpoint{Addresses: from.Addresses, Hostname: from.Hostname, Conditions: discoveryv1.EndpointConditions{Ready: from.Conditions.Ready}}
	}
	return t
}

func trimNamespace(n *corev1.Namespace) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: trimmed(&n.ObjectMeta)}
}
