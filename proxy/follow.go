package proxy

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/reserved"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/sorting"
)

// cacheOf returns the shared cache of a resource, or a separate one with options o if there are no
// shared caches or the resource is optional.
func cacheOf[T client.Object](p *Proxy, r client.Resource[T], o cache.Options[T]) *cache.Cache[T] {
	if p.opts.Caches != nil && !o.Optional {
		return cache.Of(p.opts.Caches, r, o.Indexes)
	}
	o.Log = p.opts.Log
	c := cache.New(p.opts.Client, r, o)
	p.caches = append(p.caches, run.Task{Name: r.Resource, Run: c.Run, Ready: c.Ready()})
	return c
}

// follows creates the caches and subscribes to their changes.
func (p *Proxy) follows() {
	if p.opts.Caches != nil {
		_, others := p.opts.Caches.Or(nil, p.opts.Log)
		p.caches = run.Stage{others}
	}
	const ours = "!" + labelProxyName + ",!" + labelHeadless
	p.services = cacheOf(p, client.Services, cache.Options[*corev1.Service]{LabelSelector: ours, Keep: keepService})
	p.services.Subscribe(func(old, now *corev1.Service) {
		s := now
		if s == nil {
			s = old
		}
		p.metrics.serviceChanges.Inc()
		p.touch(types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, 0)
	})
	p.slices = cacheOf(p, client.EndpointSlices, cache.Options[*discoveryv1.EndpointSlice]{
		LabelSelector: ours,
		Keep:          (&interner{yes: true}).keep,
		Indexes: cache.Indexes[*discoveryv1.EndpointSlice]{
			byService: func(s *discoveryv1.EndpointSlice) []string { return []string{serviceOf(s).String()} },
		},
	})
	started := time.Now().Truncate(time.Second) // the precision of timestamps in pods
	p.slices.Subscribe(func(old, now *discoveryv1.EndpointSlice) {
		p.metrics.endpointChanges.Inc()
		if at := causeOf(now); !at.Before(started) && !at.Equal(causeOf(old)) {
			p.caused(at)
		}
		if old != nil && serviceOf(old) == apiServer || now != nil && serviceOf(now) == apiServer {
			p.moveTo(func(h *Here) { h.Reserved.Servers = p.servers() })
		}
		if old != nil {
			p.touch(serviceOf(old), 0)
		}
		if now != nil {
			name := serviceOf(now)
			p.touch(name, awaited(now, p.slices.ByIndex(byService, name.String())))
		}
	})
	if p.opts.Networks != nil {
		p.networks = cacheOf(p, client.ServiceCIDRs, cache.Options[*networkingv1.ServiceCIDR]{Optional: true})
		p.networks.Subscribe(func(_, _ *networkingv1.ServiceCIDR) {
			p.moveTo(func(h *Here) { h.Services = networksOf(p.networks.List("")) })
		})
	}
	if p.opts.Announcer != nil {
		p.followAnnouncers()
	}
	p.nodes = cacheOf(p, client.Nodes, cache.Options[*corev1.Node]{Keep: keepNode})
	p.nodes.Subscribe(func(was, now *corev1.Node) {
		p.reserve(was, now)
		if p.opts.Node == "" {
			return
		}
		p.maybeAnother(was, now)
		if now != nil && now.Name == p.opts.Node {
			p.leaving.Store(isLeaving(now))
			p.moveTo(func(h *Here) { h.Zone, h.Addresses = now.Labels[corev1.LabelTopologyZone], addressesOf(now) })
		}
	})
}

// reserve keeps the addresses and pod networks of Nodes from Services. Either Node may be nil.
func (p *Proxy) reserve(was, now *corev1.Node) {
	var before, after []netip.Addr
	if was != nil {
		before = addressesOf(was)
	}
	var networks []netip.Prefix
	if now != nil {
		after = addressesOf(now)
		for _, text := range now.Spec.PodCIDRs {
			if n, err := netip.ParsePrefix(text); err == nil && !n.Addr().Is4In6() {
				networks = append(networks, n)
			}
		}
	}
	p.moveTo(func(h *Here) {
		if !slices.Equal(before, after) {
			h.Reserved.Nodes = reserved.Replace(h.Reserved.Nodes, before, after)
		}
		// The networks of a Node that goes stay: another Node may get them.
		h.Reserved.Pods = reserved.AddNetworks(h.Reserved.Pods, networks...)
	})
}

// apiServer is the Service of the API server.
var apiServer = types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// servers returns the addresses of the API server, ascending, without duplicates.
func (p *Proxy) servers() (all []netip.Addr) {
	for _, s := range p.slices.ByIndex(byService, apiServer.String()) {
		for i := range s.Endpoints {
			for _, text := range s.Endpoints[i].Addresses {
				if a, err := netip.ParseAddr(text); err == nil {
					all = append(all, a)
				}
			}
		}
	}
	sorting.Slice(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// isLeaving reports whether a node is about to be removed.
func isLeaving(n *corev1.Node) bool {
	return n.DeletionTimestamp != nil || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == scaledAway })
}

// networksOf returns the networks of ServiceCIDRs, ascending, without duplicates. Like kube-proxy
// it ignores their conditions: until an object is deleted there may be cluster IPs in its networks.
func networksOf(all []*networkingv1.ServiceCIDR) (ns []netip.Prefix) {
	for _, o := range all {
		for _, text := range o.Spec.CIDRs {
			if n, err := netip.ParsePrefix(text); err == nil && !n.Addr().Is4In6() {
				ns = append(ns, n.Masked())
			}
		}
	}
	sorting.Slice(ns, netip.Prefix.Compare)
	return slices.Compact(ns)
}

// scaledAway is the taint of a node that a cluster autoscaler is about to remove.
const scaledAway = "ToBeDeletedByClusterAutoscaler"

// causeOf returns when the change of a Service or pod happened that led to a slice, from the
// annotation of the EndpointSlice controller, or the zero time. The slice may be nil.
func causeOf(s *discoveryv1.EndpointSlice) time.Time {
	if s == nil {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return time.Time{}
	}
	return at
}

func serviceOf(s *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
}

func addressesOf(n *corev1.Node) []netip.Addr {
	var as []netip.Addr
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			as = append(as, ip)
		}
	}
	sorting.Slice(as, netip.Addr.Compare)
	return slices.Compact(as)
}

// meta returns the part of an object's metadata that the cache keeps.
func meta(m *metav1.ObjectMeta, labels ...string) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp}
	for _, name := range labels {
		if v, ok := m.Labels[name]; ok {
			if kept.Labels == nil {
				kept.Labels = map[string]string{}
			}
			kept.Labels[name] = v
		}
	}
	return kept
}

// keepService returns the part of a Service that plans need.
func keepService(s *corev1.Service) *corev1.Service {
	kept := &corev1.Service{ObjectMeta: meta(&s.ObjectMeta, labelProxyName, labelHeadless), Spec: s.Spec, Status: corev1.ServiceStatus{LoadBalancer: s.Status.LoadBalancer}}
	kept.Spec.Selector = nil
	for _, name := range []string{ModeAnnotation, ProxyProtocolAnnotation, KeepClientAnnotation, MaxConnectionsAnnotation, corev1.AnnotationLoadBalancerSourceRangesKey} {
		if v, ok := s.Annotations[name]; ok {
			if kept.Annotations == nil {
				kept.Annotations = map[string]string{}
			}
			kept.Annotations[name] = v
		}
	}
	return kept
}

func keepNode(n *corev1.Node) *corev1.Node {
	kept := &corev1.Node{
		ObjectMeta: meta(&n.ObjectMeta, corev1.LabelTopologyZone, corev1.LabelNodeExcludeBalancers), Spec: corev1.NodeSpec{Taints: n.Spec.Taints, PodCIDRs: n.Spec.PodCIDRs},
		Status: corev1.NodeStatus{Addresses: n.Status.Addresses},
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			kept.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	kept.DeletionTimestamp = n.DeletionTimestamp
	return kept
}

// An interner reduces EndpointSlices to what plans need. It shares strings and booleans that many
// endpoints have in common, to save memory.
type interner struct {
	yes, no bool // true and false; never changed

	mu    sync.Mutex
	words map[string]*string // guarded by mu; names of nodes, of which there are few
}

// maxWords is the largest number of strings that an interner remembers.
const maxWords = 20000

func (k *interner) word(s *string) *string {
	if s == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.words[*s]; w != nil {
		return w
	}
	if k.words == nil || len(k.words) >= maxWords {
		k.words = map[string]*string{}
	}
	w := new(*s)
	k.words[*s] = w
	return w
}

func (k *interner) condition(b *bool) *bool {
	switch {
	case b == nil:
		return nil
	case *b:
		return &k.yes
	}
	return &k.no
}

// keep returns the part of a slice that plans need.
func (k *interner) keep(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	kept := &discoveryv1.EndpointSlice{ObjectMeta: meta(&s.ObjectMeta, discoveryv1.LabelServiceName, labelProxyName, labelHeadless), AddressType: s.AddressType, Ports: s.Ports}
	if at, ok := s.Annotations[corev1.EndpointsLastChangeTriggerTime]; ok {
		kept.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: at}
	}
	kept.Endpoints = make([]discoveryv1.Endpoint, len(s.Endpoints))
	addresses := make([]string, len(s.Endpoints))
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		to := &kept.Endpoints[i]
		if len(e.Addresses) > 0 {
			addresses[i] = e.Addresses[0]
			to.Addresses = addresses[i : i+1 : i+1]
		}
		to.Conditions = discoveryv1.EndpointConditions{
			Ready: k.condition(e.Conditions.Ready), Serving: k.condition(e.Conditions.Serving), Terminating: k.condition(e.Conditions.Terminating),
		}
		to.NodeName, to.Hints = k.word(e.NodeName), e.Hints
	}
	return kept
}
