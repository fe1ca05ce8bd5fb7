package proxy

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// An EndpointStatus says whether an endpoint is a backend, or why it is none. It is a word in
// CamelCase.
type EndpointStatus string

// What endpoints may be. Only the first two are backends.
const (
	Candidate       EndpointStatus = "Candidate"
	LastResort      EndpointStatus = "LastResort"      // it terminates and serves, and no other is ready
	NotReady        EndpointStatus = "NotReady"        // its pod is not
	Terminating     EndpointStatus = "Terminating"     // it terminates, and serves no more
	Leaving         EndpointStatus = "Leaving"         // it terminates and serves, and others are ready
	OnAnotherNode   EndpointStatus = "OnAnotherNode"   // and the traffic policy is Local
	ForAnotherZone  EndpointStatus = "ForAnotherZone"  // by hints
	ForAnotherNode  EndpointStatus = "ForAnotherNode"  // by hints
	AddressRefused  EndpointStatus = "AddressRefused"  // see P2
	OfAnotherFamily EndpointStatus = "OfAnotherFamily" // IPv4 for IPv6, or the other way
	WithoutPort     EndpointStatus = "WithoutPort"     // its slice does not have the port
	OfAnotherProxy  EndpointStatus = "OfAnotherProxy"  // its slice is labelled so
)

// Chosen reports whether it is a backend.
func (s EndpointStatus) Chosen() bool { return s == Candidate || s == LastResort }

// A Judgement is what becomes of an endpoint. What it refers to is the caller's.
type Judgement struct {
	Endpoint *discoveryv1.Endpoint
	At       netip.AddrPort // not valid if the address is refused or there is no port
	Status   EndpointStatus
}

// JudgeEndpoints says of each endpoint in the slices of a Service whether connections that
// come by a rule of its plan may go there, and why not. Inside is whether they come from the
// node or one of its pods (see [Rule]). It asks what [NewPlan] asks, of one after the other.
func JudgeEndpoints(svc *corev1.Service, endpoints []*discoveryv1.EndpointSlice, here Here, r *PlannedRule, inside bool) []Judgement {
	local := r.Pool.Local && (!inside || r.Inside == nil)
	id := r.Pool.PortID
	var ours []*discoveryv1.EndpointSlice
	for _, s := range endpoints {
		if !ofOthers(s.Labels) {
			ours = append(ours, s)
		}
	}
	all := (&planner{svc: svc, slices: ours, here: here}).endpoints(id)
	near := nearest(all)
	ready := false // one of those that may be chosen
	for i := range all {
		ready = ready || all[i].ready && (!local || all[i].local)
	}
	var judged []Judgement
	for _, s := range endpoints {
		for i := range s.Endpoints {
			j := Judgement{Endpoint: &s.Endpoints[i]}
			e, status := lone(svc, s, i, here, id)
			if j.Status = status; status == "" {
				j.At, j.Status = e.at, e.status(local, ready, near)
				if j.Status == NotReady && is(j.Endpoint.Conditions.Terminating) {
					j.Status = Terminating
				}
			}
			judged = append(judged, j)
		}
	}
	return judged
}

// lone describes an endpoint of a slice, or says why it is none of the port.
func lone(svc *corev1.Service, s *discoveryv1.EndpointSlice, i int, here Here, id PortID) (endpoint, EndpointStatus) {
	kind := discoveryv1.AddressTypeIPv4
	if id.IPv6 {
		kind = discoveryv1.AddressTypeIPv6
	}
	_, has := endpointPort(s, id.Port, id.Protocol)
	switch {
	case ofOthers(s.Labels):
		return endpoint{}, OfAnotherProxy
	case s.AddressType != kind:
		return endpoint{}, OfAnotherFamily
	case !has:
		return endpoint{}, WithoutPort
	}
	one := *s
	one.Endpoints = s.Endpoints[i : i+1]
	es := (&planner{svc: svc, slices: []*discoveryv1.EndpointSlice{&one}, here: here}).endpoints(id)
	if len(es) == 0 {
		return endpoint{}, AddressRefused
	}
	return es[0], ""
}

// status says what choose does with an endpoint. Ready is whether there is a ready one.
func (e *endpoint) status(local, ready bool, near func(*endpoint) bool) EndpointStatus {
	switch {
	case local && !e.local:
		return OnAnotherNode
	case e.ready && (local || near(e)):
		return Candidate
	case e.ready && near(&endpoint{myNode: true}): // hints of nodes are heeded
		return ForAnotherNode
	case e.ready:
		return ForAnotherZone
	case e.leaving && !ready:
		return LastResort
	case e.leaving:
		return Leaving
	}
	return NotReady
}
