package proxy

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// An EndpointStatus is whether an endpoint is a backend, or why it is not. It is a CamelCase word.
type EndpointStatus string

// The values of EndpointStatus. Only the first two are backends.
const (
	Candidate       EndpointStatus = "Candidate"
	LastResort      EndpointStatus = "LastResort"      // it terminates and serves, and no endpoint is ready
	NotReady        EndpointStatus = "NotReady"        // its pod is not ready
	Terminating     EndpointStatus = "Terminating"     // it terminates, and no longer serves
	Leaving         EndpointStatus = "Leaving"         // it terminates and serves, but others are ready
	OnAnotherNode   EndpointStatus = "OnAnotherNode"   // the traffic policy is Local
	ForAnotherZone  EndpointStatus = "ForAnotherZone"  // its hints are for another zone
	ForAnotherNode  EndpointStatus = "ForAnotherNode"  // its hints are for another node
	AddressRefused  EndpointStatus = "AddressRefused"  // see proxy-P2
	OfAnotherFamily EndpointStatus = "OfAnotherFamily" // it is IPv4 for an IPv6 rule, or the reverse
	WithoutPort     EndpointStatus = "WithoutPort"     // its slice does not have the port
	OfAnotherProxy  EndpointStatus = "OfAnotherProxy"  // its slice has the label of another proxy
)

// Chosen reports whether the endpoint is a backend.
func (s EndpointStatus) Chosen() bool { return s == Candidate || s == LastResort }

// A Judgement is the status of an endpoint. It refers to objects of the caller.
type Judgement struct {
	Endpoint *discoveryv1.Endpoint
	At       netip.AddrPort // not valid if the address is refused or there is no port
	Status   EndpointStatus
}

// JudgeEndpoints returns the status of each endpoint in the slices of a Service for the connections
// of one rule of its plan. Inside is true for connections from the node or one of its pods (see
// [Rule]). It applies the checks of [NewPlan] to each endpoint separately.
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
	ready := false // whether an endpoint that the policy allows is ready
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

// lone returns one endpoint of a slice, or why it is not an endpoint of the port.
func lone(svc *corev1.Service, s *discoveryv1.EndpointSlice, i int, here Here, id PortID) (endpoint, EndpointStatus) {
	kind := discoveryv1.AddressTypeIPv4
	if id.IPv6 {
		kind = discoveryv1.AddressTypeIPv6
	}
	_, has := numberOf(s.Ports, portOfSlice{id.Port, id.Protocol})
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

// status returns what choose does with an endpoint; ready is whether any is ready.
func (e *endpoint) status(local, ready bool, near func(*endpoint) bool) EndpointStatus {
	switch {
	case local && !e.local:
		return OnAnotherNode
	case e.ready && (local || near(e)):
		return Candidate
	case e.ready && near(&endpoint{myNode: true}): // hints of nodes are in use
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
