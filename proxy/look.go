package proxy

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Service returns what the proxy knows of a Service, and of its node. It may be called
// from any goroutine; what it returns must not be changed.
func (p *Proxy) Service(name types.NamespacedName) (svc *corev1.Service, endpoints []*discoveryv1.EndpointSlice, here Here, known bool) {
	p.mu.Lock()
	here = p.here
	p.mu.Unlock()
	if svc, known = p.services.Get(name.Namespace, name.Name); known {
		endpoints = p.slices.ByIndex(byService, name.String())
	}
	return svc, endpoints, here, known
}

// Seen is what a kernel really has for a [Frontend].
type Seen struct {
	Found    bool // there is a rule
	Backends []netip.AddrPort
	Inside   []netip.AddrPort // as in [Rule]

	// Bound is the backend that the client of the question goes back to, if it is valid,
	// for Left more.
	Bound netip.AddrPort
	Left  time.Duration
}

// PoolSeen is what a forwarder really has for a [PoolID].
type PoolSeen struct {
	Backends []netip.AddrPort
	Suspects []netip.AddrPort // those that did not answer lately, and are avoided

	// Bound and Left are as in [Seen].
	Bound netip.AddrPort
	Left  time.Duration
}
