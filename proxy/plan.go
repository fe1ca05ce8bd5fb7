package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/names"
)

// Here is what a plan has to know of the node that it is for.
type Here struct {
	Node string // its name
	Zone string // its label topology.kubernetes.io/zone; empty if it has none

	// Addresses of the Node.
	Addresses []netip.Addr

	// Services are the networks of cluster IPs, as far as they are known. No endpoint
	// is there, and no other address of a Service.
	Services []netip.Prefix

	// Userspace is how Services are proxied that do not say it themselves.
	Userspace bool

	// Loopback says that node ports are at 127.0.0.1 and ::1 as well. Connections from there are
	// relayed, since packets with that source must not leave the host.
	Loopback bool
}

func (h Here) equal(o Here) bool {
	return h.Node == o.Node && h.Zone == o.Zone && slices.Equal(h.Addresses, o.Addresses) &&
		slices.Equal(h.Services, o.Services) && h.Userspace == o.Userspace && h.Loopback == o.Loopback
}

// inServices reports whether an address is in the service network.
func (h Here) inServices(a netip.Addr) bool {
	return slices.ContainsFunc(h.Services, func(n netip.Prefix) bool { return n.Contains(a) })
}

// A Plan is what to do on one node for one Service. The zero Plan is nothing.
type Plan struct {
	Rules []PlannedRule // in the order of the Service's addresses and ports; no door twice
	Pools []Pool        // each PoolID once

	// Health is asked for at the health-check node port, if there is one.
	Health *Health

	// Announced addresses are those of this cluster's own load balancer, which
	// this node may answer for; each once.
	Announced []Announced

	// Spent are endpoints that terminate and that no connection goes to any more, ascending,
	// each once: their servers may have been told to stop. See [NextPlan].
	Spent []netip.Addr

	Faults  []Fault  // what the Service says and can't be heeded
	Refused []string // addresses that no rule may lead from or to, ascending, each once
}

// A PlannedRule is a Rule. If that is Relayed, Backends and Inside are still those
// behind the sockets: the pool of this ID, and of the same with Local false.
type PlannedRule struct {
	Rule
	Pool PoolID
}

// Announced is an address that some node answers for.
type Announced struct {
	Address netip.Addr
	Nodes   []string // that may, ascending; nil stands for all
}

func (a Announced) equal(o Announced) bool {
	return a.Address == o.Address && (a.Nodes == nil) == (o.Nodes == nil) && slices.Equal(a.Nodes, o.Nodes)
}

// Health is what a health-check node port tells.
type Health struct {
	Service types.NamespacedName
	Port    uint16
	Local   int // ready endpoints of this node
}

// A Fault is something that a Service says and that was not understood.
type Fault struct {
	Reason  string // a word in CamelCase, for an event
	Message string // names the field and what is expected
}

// Labels that tell proxies to leave a Service or an EndpointSlice alone.
const (
	labelProxyName = "service.kubernetes.io/service-proxy-name"
	labelHeadless  = corev1.IsHeadlessService
)

func ofOthers(labels map[string]string) bool {
	_, other := labels[labelProxyName]
	_, headless := labels[labelHeadless]
	return other || headless
}

// NewPlan returns what to do for a Service whose EndpointSlices are given, on a node.
// A Service without an address of its own (headless, ExternalName, not allocated yet)
// and one that is another proxy's have nothing. svc may be nil. It neither changes nor
// keeps what it is given.
func NewPlan(svc *corev1.Service, endpoints []*discoveryv1.EndpointSlice, here Here) Plan {
	return NextPlan(nil, svc, endpoints, here)
}

// NextPlan is NewPlan after another one that found these endpoints spent, as its Spent has them. Where none is
// ready, those that terminate serve, but not spent ones as long as there are others: what they
// say of themselves is older than the signal that they were sent (decision 0008).
func NextPlan(spent []netip.Addr, svc *corev1.Service, endpoints []*discoveryv1.EndpointSlice, here Here) Plan {
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName || ofOthers(svc.Labels) {
		return Plan{}
	}
	p := planner{svc: svc, here: here, doors: map[Door]bool{}, ports: map[PortID]bool{}, spent: spent}
	p.wishes = p.readAnnotations()
	for _, s := range endpoints {
		if !ofOthers(s.Labels) {
			p.slices = append(p.slices, s)
		}
	}
	for i, f := range p.families() {
		p.addresses(f)
		local := map[netip.Addr]bool{}
		for n := range svc.Spec.Ports {
			p.port(f, &svc.Spec.Ports[n], local)
		}
		if i == 0 {
			p.health(len(local))
		}
	}
	p.announce()
	p.spend()
	slices.Sort(p.plan.Refused)
	p.plan.Refused = slices.Compact(p.plan.Refused)
	return p.plan
}

// A planner makes one plan.
type planner struct {
	svc    *corev1.Service
	slices []*discoveryv1.EndpointSlice
	here   Here
	wishes wishes
	spent  []netip.Addr // before, ascending
	doors  map[Door]bool
	ports  map[PortID]bool
	plan   Plan

	leaving []netip.Addr // endpoints that terminate

	// Nodes with endpoints that are ready, and with those that serve while they terminate, of IPv4
	// and IPv6.
	homes, lastHomes [2][]string

	// Of the family that is being planned.
	external []netip.Addr
	balanced []netip.Addr // addresses of load balancers that packets reach this node with
	sources  []netip.Prefix
}

// A family is that of one of the cluster IPs.
type family struct {
	cluster netip.Addr
	ipv6    bool
}

// families returns the families that the Service has, its own order kept.
func (p *planner) families() []family {
	ips := p.svc.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{p.svc.Spec.ClusterIP}
	}
	var fs []family
	for _, s := range ips {
		if s == "" || s == corev1.ClusterIPNone {
			continue
		}
		a, ok := p.address(s)
		if !ok || slices.ContainsFunc(fs, func(f family) bool { return f.ipv6 == a.Is6() }) {
			continue
		}
		fs = append(fs, family{cluster: a, ipv6: a.Is6()})
	}
	return fs
}

// address reads an address of a Service or endpoint; one that is refused is noted.
func (p *planner) address(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || !usable(a) {
		p.plan.Refused = append(p.plan.Refused, s)
		return netip.Addr{}, false
	}
	return a, true
}

// outside is address for one that clients outside use. In the service network it would be,
// now or later, the cluster IP of another Service, whose clients would come to this one.
func (p *planner) outside(s string) (netip.Addr, bool) {
	a, ok := p.address(s)
	if ok && p.here.inServices(a) && !slices.Contains(p.svc.Spec.ClusterIPs, s) && s != p.svc.Spec.ClusterIP {
		p.plan.Refused = append(p.plan.Refused, s)
		return netip.Addr{}, false
	}
	return a, ok
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// usable reports whether an address may be that of a Service or endpoint. What
// means another host on each link, or this host itself, never may: who may write an
// EndpointSlice would reach servers that listen there because nobody else can.
func usable(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.Is4In6() && !a.IsUnspecified() && !a.IsLoopback() &&
		!a.IsLinkLocalUnicast() && !a.IsMulticast() && a != broadcast
}

// addresses finds the addresses of a family at which the Service is reached from
// outside, and who may.
func (p *planner) addresses(f family) {
	p.external, p.balanced, p.sources = nil, nil, nil
	for _, s := range p.svc.Spec.ExternalIPs {
		if a, ok := p.outside(s); ok && a.Is6() == f.ipv6 {
			p.external = append(p.external, a)
		}
	}
	if p.svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	for _, in := range p.svc.Status.LoadBalancer.Ingress {
		if in.IP == "" || in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP {
			continue // a name, or packets come with an address of this node
		}
		if a, ok := p.outside(in.IP); ok && a.Is6() == f.ipv6 {
			p.balanced = append(p.balanced, a)
		}
	}
	p.sources = p.sourceRanges(f)
}

// sourceRanges returns who may connect to the addresses of load balancers. Of a
// Service that has ranges, but none of this family, nobody may: only the address
// itself, which this node may have as its own.
func (p *planner) sourceRanges(f family) []netip.Prefix {
	ranges, where := p.svc.Spec.LoadBalancerSourceRanges, "spec.loadBalancerSourceRanges"
	if old, ok := p.svc.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]; len(ranges) == 0 && ok && strings.TrimSpace(old) != "" {
		ranges, where = strings.Split(old, ","), "the annotation "+corev1.AnnotationLoadBalancerSourceRangesKey
	}
	if len(ranges) == 0 {
		return nil
	}
	var sources []netip.Prefix
	near := false // may this node itself connect?
	for _, s := range ranges {
		n, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil || n.Addr().Is4In6() {
			p.fault("InvalidSourceRange", "%s: %q is no network, want one such as 192.0.2.0/24; nobody is let in for it", where, s)
			continue
		}
		if n.Addr().Is6() == f.ipv6 {
			sources = append(sources, n.Masked())
			near = near || slices.ContainsFunc(p.here.Addresses, n.Contains)
		}
	}
	if near || len(sources) == 0 {
		// What this node sends to an address that it has itself comes from there.
		for _, a := range p.balanced {
			sources = append(sources, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	slices.SortFunc(sources, netip.Prefix.Compare)
	return slices.Compact(sources)
}

// spend notes the endpoints that terminate and are spent, now or since before. It looks at each
// list of backends once: they are ascending, and so are those that leave.
func (p *planner) spend() {
	if len(p.leaving) == 0 {
		return
	}
	slices.SortFunc(p.leaving, netip.Addr.Compare)
	p.leaving = slices.Compact(p.leaving)
	used := make([]bool, len(p.leaving))
	seen := map[*netip.AddrPort]bool{} // the first of each list: the doors of a port share theirs
	for i := range p.plan.Rules {
		for _, backends := range [][]netip.AddrPort{p.plan.Rules[i].Backends, p.plan.Rules[i].Inside} {
			if len(backends) == 0 || seen[&backends[0]] {
				continue
			}
			seen[&backends[0]] = true
			n := 0
			for _, at := range backends {
				for n < len(p.leaving) && p.leaving[n].Less(at.Addr()) {
					n++
				}
				if n < len(p.leaving) && p.leaving[n] == at.Addr() {
					used[n] = true
				}
			}
		}
	}
	for i, a := range p.leaving {
		if !used[i] || p.wasSpent(a) {
			p.plan.Spent = append(p.plan.Spent, a)
		}
	}
}

// wasSpent reports whether an endpoint was spent before.
func (p *planner) wasSpent(a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(p.spent, a, netip.Addr.Compare)
	return found
}

// port plans a port for a family. Ready endpoints of this node are added to local.
func (p *planner) port(f family, port *corev1.ServicePort, local map[netip.Addr]bool) {
	protocol := cmp.Or(port.Protocol, corev1.ProtocolTCP)
	if protocol != corev1.ProtocolTCP && protocol != corev1.ProtocolUDP && protocol != corev1.ProtocolSCTP {
		return
	}
	id := PortID{Service: types.NamespacedName{Namespace: p.svc.Namespace, Name: p.svc.Name}, Port: port.Name, Protocol: protocol, IPv6: f.ipv6}
	if p.ports[id] {
		return // two ports of one name: no server lets that pass
	}
	p.ports[id] = true
	spec := &p.svc.Spec
	inLocal := spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	outLocal := spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	es := p.endpoints(id)
	for _, e := range es {
		if e.ready && e.local {
			local[e.at.Addr()] = true
		}
	}
	r := router{planner: p, id: id, affinity: affinity(p.svc), relayed: p.wishes.userspace && protocol != corev1.ProtocolSCTP}
	r.all, r.local = choose(es)
	r.door(f.cluster, port.Port, inLocal, false, MasqueradeForeign)
	outside := MasqueradeEverybody
	if outLocal {
		outside = MasqueradeNobody
	}
	for _, a := range p.external {
		r.door(a, port.Port, outLocal, true, outside)
	}
	sources := len(p.plan.Rules)
	for _, a := range p.balanced {
		r.door(a, port.Port, outLocal, true, outside)
	}
	for i := range p.plan.Rules[sources:] {
		p.plan.Rules[sources+i].Sources = p.sources
	}
	if port.NodePort != 0 {
		all, loopback := netip.IPv4Unspecified(), netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if f.ipv6 {
			all, loopback = netip.IPv6Unspecified(), netip.IPv6Loopback()
		}
		r.door(all, port.NodePort, outLocal, true, outside)
		if p.here.Loopback && protocol != corev1.ProtocolSCTP {
			r.relayed = true
			r.door(loopback, port.NodePort, false, true, MasqueradeNobody)
		}
	}
	r.pools(p.wishes)
}

// A router makes the rules of one port for one family.
type router struct {
	*planner
	id         PortID
	all, local []netip.AddrPort
	affinity   time.Duration
	relayed    bool
	used       [2]bool // which pools relayed rules lead to: all, local
}

// door adds the rule for an address. With local, connections go to endpoints of this
// node; what comes from inside to a door that is for clients outside goes to all.
func (r *router) door(a netip.Addr, port int32, local, outside bool, m Masquerade) {
	d := Door{Address: a, Protocol: r.id.Protocol, Port: uint16(port)}
	if port <= 0 || port > 65535 || r.doors[d] {
		return
	}
	r.doors[d] = true
	rule := PlannedRule{
		Rule: Rule{Door: d, Backends: r.all, Affinity: r.affinity, Masquerade: m, Relayed: r.relayed},
		Pool: PoolID{PortID: r.id, Local: local},
	}
	if local {
		rule.Backends = r.local
		rule.Drop = len(r.local) == 0 && len(r.all) > 0
		if outside {
			rule.Inside = r.all
		}
	}
	if r.relayed {
		rule.Affinity, rule.Masquerade = 0, MasqueradeNobody
		r.used[0] = r.used[0] || !local || len(rule.Inside) > 0
		r.used[1] = r.used[1] || local
	}
	r.plan.Rules = append(r.plan.Rules, rule)
}

// pools adds the pools that relayed rules lead to.
func (r *router) pools(w wishes) {
	for i, backends := range [][]netip.AddrPort{r.all, r.local} {
		if !r.used[i] {
			continue
		}
		pool := Pool{PoolID: PoolID{PortID: r.id, Local: i == 1}, Backends: backends, Affinity: r.affinity, Transparent: w.transparent}
		if r.id.Protocol == corev1.ProtocolTCP {
			pool.ProxyProtocol, pool.MaxConnections = w.proxyProtocol, w.maxConnections
		}
		r.plan.Pools = append(r.plan.Pools, pool)
	}
}

// health plans the health-check node port.
func (p *planner) health(local int) {
	s := &p.svc.Spec
	if s.Type == corev1.ServiceTypeLoadBalancer && s.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal &&
		s.HealthCheckNodePort > 0 && s.HealthCheckNodePort <= 65535 {
		p.plan.Health = &Health{
			Service: types.NamespacedName{Namespace: p.svc.Namespace, Name: p.svc.Name}, Port: uint16(s.HealthCheckNodePort), Local: local,
		}
	}
}

// poolClass is the loadBalancerClass of Services that want an address of this cluster's own
// pool and of nobody else.
const poolClass = names.Pool

// announce plans which addresses this node may answer for: those of our own load
// balancer, and with externalTrafficPolicy Local only if an endpoint is here.
func (p *planner) announce() {
	spec := &p.svc.Spec
	if c := spec.LoadBalancerClass; c != nil && *c != poolClass || spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	for _, in := range p.svc.Status.LoadBalancer.Ingress {
		a, err := netip.ParseAddr(in.IP)
		if err != nil || !usable(a) || in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP ||
			slices.ContainsFunc(p.plan.Announced, func(o Announced) bool { return o.Address == a }) || slices.Contains(spec.ExternalIPs, in.IP) || slices.Contains(spec.ClusterIPs, in.IP) {
			continue
		}
		if slices.ContainsFunc(p.plan.Rules, func(r PlannedRule) bool { return r.Address == a && !r.Drop }) {
			p.plan.Announced = append(p.plan.Announced, Announced{a, p.nodes(a.Is6())})
		}
	}
}

// nodes returns those that may answer for an address of a family, ascending; nil stands for all. With an
// externalTrafficPolicy of Local they are those with endpoints, if there are any.
func (p *planner) nodes(ipv6 bool) []string {
	if p.svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return nil
	}
	f := 0
	if ipv6 {
		f = 1
	}
	for _, names := range [][]string{p.homes[f], p.lastHomes[f]} {
		if len(names) > 0 {
			slices.Sort(names)
			return slices.Compact(names)
		}
	}
	return nil
}

// affinity defaults to three hours, as the Service API does.
func affinity(svc *corev1.Service) time.Duration {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil && *c.ClientIP.TimeoutSeconds > 0 {
		return time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
	}
	return 3 * time.Hour
}
