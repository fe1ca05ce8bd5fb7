package proxy

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// reportFaults logs invalid settings of a Service and refused addresses, and emits events, once
// each.
func (p *Proxy) reportFaults(svc *corev1.Service, s *state, plan Plan) {
	if svc != nil {
		if s.uid != svc.UID {
			s.faults, s.refused, s.unopened, s.uid = nil, nil, nil, svc.UID
		}
		for _, f := range plan.Faults {
			if !slices.Contains(s.faults, f) {
				p.opts.Log.Warn("invalid service setting", "service", svc.Namespace+"/"+svc.Name, "fault", f.Message)
				p.events.Event(svc, corev1.EventTypeWarning, f.Reason, "%s", f.Message)
			}
		}
		var fresh []string
		for _, a := range plan.Refused {
			if _, before := slices.BinarySearch(s.refused, a); !before { // both are sorted
				fresh = append(fresh, a)
			}
		}
		if len(fresh) > 0 {
			p.metrics.refusedAddresses.Add(float64(len(fresh)))
			said := strings.Join(fresh[:min(len(fresh), 10)], ", ")
			p.opts.Log.Warn("refusing addresses of a service or its endpoints", "service", svc.Namespace+"/"+svc.Name, "addresses", said, "number", len(fresh))
			p.events.Event(svc, corev1.EventTypeWarning, "AddressRefused", "No traffic is sent to or from %s: an address must not be loopback, link-local, multicast, broadcast, unspecified, 4-in-6, of another family, or in the service network", said)
		}
	}
	s.faults, s.refused = plan.Faults, plan.Refused
}

// reportSockets logs and emits an event once when sockets of a Service fail to open, and again when
// all are open. Retries are the caller's.
func (p *Proxy) reportSockets(svc *corev1.Service, s *state, unopened []string) {
	if svc != nil {
		name := svc.Namespace + "/" + svc.Name
		for _, what := range unopened {
			if !slices.Contains(s.unopened, what) {
				p.opts.Log.Error("cannot relay a service; retrying", "service", name, "fault", what)
				p.events.Event(svc, corev1.EventTypeWarning, "RelayFailed", "Node %s cannot relay connections: %s; retrying", p.opts.Node, what)
			}
		}
		if len(unopened) == 0 && len(s.unopened) > 0 {
			p.opts.Log.Info("a service is relayed again", "service", name)
			p.events.Event(svc, corev1.EventTypeNormal, "Relayed", "Node %s relays connections to all ports again", p.opts.Node)
		}
	}
	s.unopened = unopened
}

// reportConflict logs that a Service does not get a frontend, and emits an event.
func (p *Proxy) reportConflict(c conflict) {
	at := netip.AddrPortFrom(c.frontend.Address, c.frontend.Port).String() + "/" + string(c.frontend.Protocol)
	p.opts.Log.Warn("two services have the same address and port: the older one gets it", "address", at, "has", c.holds, "lacks", c.loser)
	if svc, ok := p.services.Get(c.loser.Namespace, c.loser.Name); ok {
		p.events.Event(svc, corev1.EventTypeWarning, "AddressTaken", "%s is already in use by Service %s, which is older: this Service does not get it", at, c.holds)
	}
}

// reportForeign logs other proxies on this node, and emits an event: two proxies interfere with
// each other.
func (p *Proxy) reportForeign(ctx context.Context) {
	if p.opts.Foreign == nil {
		return
	}
	found, err := p.opts.Foreign()
	if err != nil {
		p.opts.Log.WarnContext(ctx, "looking for other service proxies on this node", "err", err)
	}
	for _, other := range found {
		p.opts.Log.WarnContext(ctx, "another service proxy has rules on this node: stop it and remove its rules", "found", other)
		if p.nodes == nil {
			continue
		}
		if node, ok := p.nodes.Get("", p.opts.Node); ok {
			p.events.Event(node, corev1.EventTypeWarning, "ForeignServiceProxy", "Another service proxy has rules on this node: %s. Stop it and remove its rules (kube-proxy --cleanup)", other)
		}
	}
}
