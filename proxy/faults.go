package proxy

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// reportFaults tells, once, of what is wrong with a Service and its endpoints.
func (p *Proxy) reportFaults(svc *corev1.Service, s *state, plan Plan) {
	if svc != nil {
		if s.uid != svc.UID {
			s.faults, s.refused, s.unopened, s.uid = nil, nil, nil, svc.UID
		}
		for _, f := range plan.Faults {
			if !slices.Contains(s.faults, f) {
				p.opts.Log.Warn("a service asks for what is not understood", "service", svc.Namespace+"/"+svc.Name, "fault", f.Message)
				p.events.Event(svc, corev1.EventTypeWarning, f.Reason, "%s", f.Message)
			}
		}
		var fresh []string
		for _, a := range plan.Refused {
			if !slices.Contains(s.refused, a) {
				fresh = append(fresh, a)
			}
		}
		if len(fresh) > 0 {
			p.metrics.refusedAddresses.Add(float64(len(fresh)))
			said := strings.Join(fresh[:min(len(fresh), 10)], ", ")
			p.opts.Log.Warn("addresses of a service or its endpoints are refused", "service", svc.Namespace+"/"+svc.Name, "addresses", said, "number", len(fresh))
			p.events.Event(svc, corev1.EventTypeWarning, "AddressRefused", "No traffic goes by %s: an address must not be of loopback, link-local, multicast, broadcast, unspecified, a 4-in-6 address, of another family, or in the service network", said)
		}
	}
	s.faults, s.refused = plan.Faults, plan.Refused
}

// reportSockets tells, once, of sockets that a Service lacks or that are not as it wants them, and that it has them. They are
// tried again all the time.
func (p *Proxy) reportSockets(svc *corev1.Service, s *state, unopened []string) {
	if svc != nil {
		name := svc.Namespace + "/" + svc.Name
		for _, what := range unopened {
			if !slices.Contains(s.unopened, what) {
				p.opts.Log.Error("a service can't be relayed; trying again", "service", name, "fault", what)
				p.events.Event(svc, corev1.EventTypeWarning, "RelayFailed", "Node %s can't relay connections: %s; it tries again", p.opts.Node, what)
			}
		}
		if len(unopened) == 0 && len(s.unopened) > 0 {
			p.opts.Log.Info("a service is relayed again", "service", name)
			p.events.Event(svc, corev1.EventTypeNormal, "Relayed", "Node %s relays connections to all ports again", p.opts.Node)
		}
	}
	s.unopened = unopened
}

// reportConflict tells of a Service that does not get a frontend.
func (p *Proxy) reportConflict(c conflict) {
	at := netip.AddrPortFrom(c.frontend.Address, c.frontend.Port).String() + "/" + string(c.frontend.Protocol)
	p.opts.Log.Warn("two services want the same address and port: the older one has it", "address", at, "has", c.holds, "lacks", c.loser)
	if svc, ok := p.services.Get(c.loser.Namespace, c.loser.Name); ok {
		p.events.Event(svc, corev1.EventTypeWarning, "AddressTaken", "%s is the address of the service %s, which is older: it is not proxied for this one", at, c.holds)
	}
}

// reportForeign tells of other proxies on this node: two are in each other's way.
func (p *Proxy) reportForeign(ctx context.Context) {
	if p.opts.Foreign == nil {
		return
	}
	found, err := p.opts.Foreign()
	if err != nil {
		p.opts.Log.WarnContext(ctx, "looking for other service proxies on this node", "err", err)
	}
	for _, other := range found {
		p.opts.Log.WarnContext(ctx, "another service proxy is or was at work on this node: stop it, and remove its rules", "found", other)
		if p.nodes == nil {
			continue
		}
		if node, ok := p.nodes.Get("", p.opts.Node); ok {
			p.events.Event(node, corev1.EventTypeWarning, "ForeignServiceProxy", "Another service proxy is or was at work on this node: %s. Stop it, and remove its rules (kube-proxy --cleanup)", other)
		}
	}
}
