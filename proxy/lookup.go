package proxy

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Service returns a Service, its EndpointSlices and the node, as the proxy has them in its caches.
// It may be called from any goroutine; the results must not be changed.
func (p *Proxy) Service(name types.NamespacedName) (svc *corev1.Service, endpoints []*discoveryv1.EndpointSlice, here Here, known bool) {
	p.mu.Lock()
	here = p.here
	p.mu.Unlock()
	if svc, known = p.services.Get(name.Namespace, name.Name); known {
		endpoints = p.slices.ByIndex(byService, name.String())
	}
	return svc, endpoints, here, known
}

// Seen is the kernel's state of a [Frontend].
type Seen struct {
	Found    bool // there is a rule
	Backends []netip.AddrPort
	Inside   []netip.AddrPort // as in [Rule]

	// Bound is the backend that affinity has for the client of the query, for the duration Left. It
	// is not valid if there is none.
	Bound netip.AddrPort
	Left  time.Duration
}

// PoolSeen is the forwarder's state of a [PoolID].
type PoolSeen struct {
	Backends []netip.AddrPort
	Suspects []netip.AddrPort // backends that failed lately and are avoided

	// Bound and Left are as in [Seen].
	Bound netip.AddrPort
	Left  time.Duration
}
