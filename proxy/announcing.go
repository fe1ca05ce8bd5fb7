package proxy

import (
	"context"
	"net/netip"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/proxy/applied"
)

// followAnnouncers creates the cache of Leases, which mark the proxies that can answer for
// addresses. It is not a shared cache: each node has a Lease that changes all the time.
func (p *Proxy) followAnnouncers() {
	p.leases = cache.New(p.opts.Client, client.Leases, cache.Options[*coordinationv1.Lease]{
		Namespace: applied.Namespace, LabelSelector: applied.Selector(), Log: p.opts.Log,
	})
	p.leases.Subscribe(func(was, now *coordinationv1.Lease) {
		if (was != nil && applied.Announces(was)) != (now != nil && applied.Announces(now)) {
			p.other.Store(true)
			p.nudge()
		}
	})
	p.caches = append(p.caches, run.Task{Name: "service proxies", Run: p.leases.Run, Ready: p.leases.Ready()})
}

// maybeAnother has the choice of nodes for addresses computed again if a node changed that may be
// one of them; simulated nodes have no proxy.
func (p *Proxy) maybeAnother(was, now *corev1.Node) {
	if p.leases == nil {
		return
	}
	n := now
	if n == nil {
		n = was
	}
	if l, ok := p.leases.Get(applied.Namespace, applied.Name(n.Name)); !ok || !applied.Announces(l) {
		return
	}
	if was == nil || now == nil || asCandidate(was) != asCandidate(now) {
		p.other.Store(true)
		p.nudge()
	}
}

// asCandidate returns the candidate of a node.
func asCandidate(n *corev1.Node) candidate {
	_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return candidate{node: n.Name, fit: ready && !isLeaving(n), excluded: excluded}
}

// candidates returns the nodes whose proxies can answer for addresses according to their Leases. If
// there is none it is this one: the proxies may lack the permission to write them.
func (p *Proxy) candidates() []candidate {
	var all []candidate
	for _, l := range p.leases.List(applied.Namespace) {
		if !applied.Announces(l) || l.Spec.HolderIdentity == nil {
			continue
		}
		c := candidate{node: *l.Spec.HolderIdentity} // not fit unless its Node is known
		if n, ok := p.nodes.Get("", c.node); ok {
			c = asCandidate(n)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		all = []candidate{{node: p.opts.Node}}
		if n, ok := p.nodes.Get("", p.opts.Node); ok {
			all[0] = asCandidate(n)
		}
	}
	return all
}

// mine returns the addresses of all Services that this node answers for, ascending.
func (p *Proxy) mine() []netip.Addr {
	wanted := map[netip.Addr][]string{}
	for _, s := range p.states {
		for _, a := range s.announced {
			only, twice := wanted[a.Address]
			switch {
			case !twice || only == nil:
				only = a.Nodes
			case a.Nodes != nil: // two Services have the address, and both want nodes with endpoints
				only = slices.DeleteFunc(slices.Clone(only), func(n string) bool { return !slices.Contains(a.Nodes, n) })
			}
			wanted[a.Address] = only
		}
	}
	var all []candidate
	if p.leases != nil && len(wanted) > 0 {
		all = p.candidates()
	}
	var mine []netip.Addr
	for a, only := range wanted {
		if len(only) == 0 {
			only = nil
		}
		if p.leases == nil || answers(a, all, only) == p.opts.Node {
			mine = append(mine, a)
		}
	}
	sorting.Slice(mine, netip.Addr.Compare)
	return mine
}

// reminders are the delays after which neighbours get an address once more, because its former node
// may have answered in between.
var reminders = []time.Duration{time.Second, 3 * time.Second}

// announceMine makes the node answer for its addresses, if these may have changed.
func (p *Proxy) announceMine(ctx context.Context) {
	p.announce = p.other.Swap(false) || p.announce
	if !p.announce || p.opts.Announcer == nil {
		p.announce = false
		return
	}
	mine := p.mine()
	err := p.opts.Announcer.Announce(ctx, mine)
	if err != nil && ctx.Err() == nil {
		p.opts.Log.ErrorContext(ctx, "cannot announce the addresses of load balancers; retrying", "err", err)
	}
	p.announce = err != nil
	if slices.ContainsFunc(mine, func(a netip.Addr) bool { return !slices.Contains(p.answered, a) }) {
		p.reminded = 0
		p.remind = time.After(reminders[0])
	}
	p.answered = mine
}

// remindNeighbours sends neighbours the addresses of this node once more.
func (p *Proxy) remindNeighbours(ctx context.Context) {
	if err := p.opts.Announcer.Remind(ctx, p.answered); err != nil && ctx.Err() == nil {
		p.opts.Log.WarnContext(ctx, "cannot remind neighbours of the addresses of load balancers", "err", err)
	}
	p.remind = nil
	if p.reminded++; p.reminded < len(reminders) {
		p.remind = time.After(reminders[p.reminded])
	}
}
