package proxy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sampan-io/sampan/internal/sorting"
)

// An endpoint is an endpoint of one port, as in its slice.
type endpoint struct {
	at      netip.AddrPort
	ready   bool
	leaving bool // it terminates, and serves
	spent   bool // it terminates, and its server may have received the signal to stop
	local   bool // it is on this node

	zones, nodes   bool // it has hints of that kind
	myZone, myNode bool // and they include this zone or node
}

// endpoints returns the endpoints of a port, in the order of the slices. It records refused
// addresses.
func (p *planner) endpoints(id PortID) []endpoint {
	kind := discoveryv1.AddressTypeIPv4
	if id.IPv6 {
		kind = discoveryv1.AddressTypeIPv6
	}
	n := 0
	for _, s := range p.slices {
		n += len(s.Endpoints)
	}
	es := make([]endpoint, 0, n)
	for _, s := range p.slices {
		if s.AddressType != kind {
			continue
		}
		number, ok := p.endpointPort(s, portOfSlice{id.Port, id.Protocol})
		if !ok {
			continue
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if len(e.Addresses) == 0 {
				continue
			}
			// All addresses of an endpoint are interchangeable (EndpointSlice API), so the
			// first is enough.
			a, ok := p.address(e.Addresses[0])
			if !ok {
				continue
			}
			if a.Is6() != id.IPv6 || p.here.inServices(a) {
				p.plan.Refused = append(p.plan.Refused, e.Addresses[0])
				continue
			}
			d := describe(e, netip.AddrPortFrom(a, number), p.here)
			p.lives(e, &d)
			if d.leaving {
				d.spent = p.wasSpent(a)
				p.leaving = append(p.leaving, a)
			}
			es = append(es, d)
		}
	}
	return es
}

// lives records the node of an endpoint, for addresses of load balancers.
func (p *planner) lives(e *discoveryv1.Endpoint, d *endpoint) {
	if p.svc.Spec.Type != corev1.ServiceTypeLoadBalancer || p.svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal || e.NodeName == nil {
		return
	}
	f := 0
	if d.at.Addr().Is6() {
		f = 1
	}
	to := &p.homes[f]
	if !d.ready {
		to = &p.lastHomes[f]
	}
	if d.ready || d.leaving {
		if *to == nil {
			*to = map[string]bool{}
		}
		(*to)[*e.NodeName] = true
	}
}

func describe(e *discoveryv1.Endpoint, at netip.AddrPort, here Here) endpoint {
	c := e.Conditions
	d := endpoint{
		at:    at,
		ready: c.Ready == nil || *c.Ready,
		local: e.NodeName != nil && *e.NodeName == here.Node && here.Node != "",
	}
	d.leaving = !d.ready && (c.Serving == nil || *c.Serving) && is(c.Terminating)
	if h := e.Hints; h != nil {
		d.zones, d.nodes = len(h.ForZones) > 0, len(h.ForNodes) > 0
		d.myZone = here.Zone != "" && slices.ContainsFunc(h.ForZones, func(z discoveryv1.ForZone) bool { return z.Name == here.Zone })
		d.myNode = here.Node != "" && slices.ContainsFunc(h.ForNodes, func(n discoveryv1.ForNode) bool { return n.Name == here.Node })
	}
	return d
}

// choose returns all backends, and those of this node: the ready endpoints or, if none is ready,
// the endpoints that serve while they terminate (KEP-1669), preferably unspent ones.
func choose(es []endpoint) (all, local []netip.AddrPort) {
	near := nearest(es)
	for _, which := range []func(*endpoint) bool{
		func(e *endpoint) bool { return e.ready },
		func(e *endpoint) bool { return e.leaving && !e.spent },
		func(e *endpoint) bool { return e.leaving },
	} {
		if len(all) == 0 {
			all = pick(es, func(e *endpoint) bool { return which(e) && (!e.ready || near(e)) })
		}
		if len(local) == 0 {
			local = pick(es, func(e *endpoint) bool { return which(e) && e.local })
		}
	}
	if slices.Equal(all, local) {
		local = all // share one slice
	}
	return all, local
}

// nearest returns a filter by topology hints of the ready endpoints. Hints are used if each ready
// endpoint has one and at least one is for this node, or else for this zone; otherwise they are
// outdated or incomplete, and using them would leave too few endpoints.
func nearest(es []endpoint) func(*endpoint) bool {
	allNodes, myNode, allZones, myZone := true, false, true, false
	for i := range es {
		if e := &es[i]; e.ready {
			allNodes, myNode = allNodes && e.nodes, myNode || e.myNode
			allZones, myZone = allZones && e.zones, myZone || e.myZone
		}
	}
	switch {
	case allNodes && myNode:
		return func(e *endpoint) bool { return e.myNode }
	case allZones && myZone:
		return func(e *endpoint) bool { return e.myZone }
	}
	return func(*endpoint) bool { return true }
}

func pick(es []endpoint, which func(*endpoint) bool) []netip.AddrPort {
	n := 0
	for i := range es {
		if which(&es[i]) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	picked := make([]netip.AddrPort, 0, n)
	for i := range es {
		if which(&es[i]) {
			picked = append(picked, es[i].at)
		}
	}
	sorting.Slice(picked, netip.AddrPort.Compare)
	return slices.Compact(picked)
}

// portOfSlice is the name of a port of an EndpointSlice with its protocol.
type portOfSlice struct {
	name     string
	protocol corev1.Protocol
}

// fewPorts is the number of ports of a slice up to which they are compared one by one.
const fewPorts = 8

// endpointPort returns the number of a port of a slice. A Service and its slices can have 20,000 ports each.
func (p *planner) endpointPort(slice *discoveryv1.EndpointSlice, want portOfSlice) (uint16, bool) {
	if len(slice.Ports) <= fewPorts {
		return numberOf(slice.Ports, want)
	}
	numbers, known := p.numbers[slice]
	if !known {
		numbers = make(map[portOfSlice]uint16, len(slice.Ports))
		for i := range slice.Ports {
			at := nameOf(&slice.Ports[i])
			if _, known := numbers[at]; known {
				continue
			}
			if n, ok := numberOf(slice.Ports[i:i+1], at); ok {
				numbers[at] = n
			}
		}
		if p.numbers == nil {
			p.numbers = map[*discoveryv1.EndpointSlice]map[portOfSlice]uint16{}
		}
		p.numbers[slice] = numbers
	}
	n, ok := numbers[want]
	return n, ok
}

// nameOf returns the name and the protocol of a port, with their defaults.
func nameOf(p *discoveryv1.EndpointPort) portOfSlice {
	at := portOfSlice{protocol: corev1.ProtocolTCP}
	if p.Name != nil {
		at.name = *p.Name
	}
	if p.Protocol != nil {
		at.protocol = *p.Protocol
	}
	return at
}

// numberOf returns the number of the first of the ports that is wanted and has one.
func numberOf(ports []discoveryv1.EndpointPort, want portOfSlice) (uint16, bool) {
	for i := range ports {
		if p := &ports[i]; nameOf(p) == want && p.Port != nil && *p.Port > 0 && *p.Port <= 65535 {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}

func is(b *bool) bool { return b != nil && *b }
