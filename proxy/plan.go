package proxy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/names"
	"github.com/sampan-io/sampan/internal/reserved"
	"github.com/sampan-io/sampan/internal/sorting"
)

// Here is the information about its node that a plan depends on.
type Here struct {
	Node string // its name
	Zone string // its label topology.kubernetes.io/zone; may be empty

	// Addresses of the Node.
	Addresses []netip.Addr

	// Services are the known networks of cluster IPs. Endpoints and other addresses of Services
	// must not be in them.
	Services []netip.Prefix

	// Reserved are addresses that belong to parts of the cluster. External addresses of Services
	// must not be among them.
	Reserved reserved.Addresses

	// Own are the ports of the cluster's own servers. They must not be node ports.
	Own reserved.Ports

	// Userspace is true if Services without the mode annotation are relayed.
	Userspace bool

	// Loopback adds node ports at 127.0.0.1 and ::1. Their connections are relayed, since packets
	// with a loopback source must not leave the host.
	Loopback bool
}

// equal reports whether two plans are the same but for external addresses, which depend on Reserved, too.
func (h Here) equal(o Here) bool {
	return h.Node == o.Node && h.Zone == o.Zone && slices.Equal(h.Addresses, o.Addresses) &&
		slices.Equal(h.Services, o.Services) && h.Userspace == o.Userspace && h.Loopback == o.Loopback && slices.Equal(h.Own, o.Own)
}

// inServices reports whether an address is in the service network.
func (h Here) inServices(a netip.Addr) bool {
	return slices.ContainsFunc(h.Services, func(n netip.Prefix) bool { return n.Contains(a) })
}

// A Plan is the work on one node for one Service. The zero Plan is nothing.
type Plan struct {
	Rules []PlannedRule // in the order of the Service's addresses and ports; each frontend once
	Pools []Pool        // each PoolID once

	// Health is the answer at the health-check node port, or nil if there is none.
	Health *Health

	// Announced are the addresses of this cluster's own load balancer that this node may answer
	// for, without duplicates.
	Announced []Announced

	// Spent are terminating endpoints that get no new connections, ascending, without duplicates:
	// their servers may have received the signal to stop. See [NextPlan].
	Spent []netip.Addr

	Faults  []Fault  // invalid settings of the Service
	Refused []string // addresses that no rule may lead from or to, ascending, without duplicates
}

// A PlannedRule is a Rule. If it is Relayed, Backends and Inside are the endpoints behind the
// sockets: those of the pools with this ID and with the same ID with Local false.
type PlannedRule struct {
	Rule
	Pool PoolID
}

// Announced is an address that one node answers for.
type Announced struct {
	Address netip.Addr
	Nodes   []string // nodes that may answer, ascending; nil is all
}

func (a Announced) equal(o Announced) bool {
	return a.Address == o.Address && (a.Nodes == nil) == (o.Nodes == nil) && slices.Equal(a.Nodes, o.Nodes)
}

// Health is the answer at a health-check node port.
type Health struct {
	Service types.NamespacedName
	Port    uint16
	Local   int // ready endpoints of this node
}

// A Fault is an invalid setting of a Service.
type Fault struct {
	Reason  string // a CamelCase word, for an event
	Message string // names the field and the accepted values
}

// Labels of Services and EndpointSlices that proxies must ignore.
const (
	labelProxyName = "service.kubernetes.io/service-proxy-name"
	labelHeadless  = corev1.IsHeadlessService
)

func ofOthers(labels map[string]string) bool {
	_, other := labels[labelProxyName]
	_, headless := labels[labelHeadless]
	return other || headless
}

// NewPlan returns the plan of a node for a Service with these EndpointSlices. For a Service
// without a cluster IP (headless, ExternalName, not allocated yet) or with the label of another
// proxy there is nothing to do. The Service may be nil. NewPlan neither changes nor keeps its
// arguments.
func NewPlan(svc *corev1.Service, endpoints []*discoveryv1.EndpointSlice, here Here) Plan {
	return NextPlan(nil, svc, endpoints, here)
}

// NextPlan is NewPlan after an earlier plan; spent is its field Spent. If no endpoint is ready,
// terminating ones serve, but spent ones only if there are no others: the signal to stop that they
// received is newer than their conditions (decision 0008).
func NextPlan(spent []netip.Addr, svc *corev1.Service, endpoints []*discoveryv1.EndpointSlice, here Here) Plan {
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName || ofOthers(svc.Labels) {
		return Plan{}
	}
	p := planner{svc: svc, here: here, frontends: map[Frontend]bool{}, ports: map[PortID]bool{}, spent: spent}
	p.wishes = p.readAnnotations()
	for _, s := range endpoints {
		if !ofOthers(s.Labels) {
			p.slices = append(p.slices, s)
		}
	}
	if p.tooLarge() {
		return p.plan
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
	p.reportClaimed()
	p.announce()
	p.spend()
	slices.Sort(p.plan.Refused)
	p.plan.Refused = slices.Compact(p.plan.Refused)
	return p.plan
}

// mostParts bounds the frontends and backends of one Service: each address has each port, and each port has each endpoint.
// A Service of the largest size that the API accepts would have 200 million.
const mostParts = 1_000_000

// tooLarge reports whether a Service has more frontends and backends than a node can have. It gets no rules then, and a fault
// says so: the other Services go on.
func (p *planner) tooLarge() bool {
	spec := &p.svc.Spec
	addresses := 2 + len(spec.ExternalIPs) + len(p.svc.Status.LoadBalancer.Ingress)
	endpoints := 0
	for _, s := range p.slices {
		endpoints += len(s.Endpoints)
	}
	if len(spec.Ports)*(addresses+endpoints) <= mostParts {
		return false
	}
	p.fault("ServiceTooLarge", "%d ports with %d addresses and %d endpoints are more than %d combinations; the service is not proxied",
		len(spec.Ports), addresses, endpoints, mostParts)
	return true
}

// A planner makes one plan.
type planner struct {
	svc       *corev1.Service
	slices    []*discoveryv1.EndpointSlice
	here      Here
	wishes    wishes
	spent     []netip.Addr // of the earlier plan, ascending
	frontends map[Frontend]bool
	ports     map[PortID]bool
	plan      Plan

	leaving []netip.Addr // terminating endpoints

	claimed []string // addresses and ports of the cluster itself that the Service asks for
	claims  map[string]bool

	// Nodes with ready endpoints, and with endpoints that serve while they terminate, for IPv4 and
	// IPv6.
	homes, lastHomes [2]map[string]bool

	numbers map[*discoveryv1.EndpointSlice]map[portOfSlice]uint16 // of slices with many ports

	// Of the family that is being planned.
	external []netip.Addr
	balanced []netip.Addr // addresses of load balancers whose packets reach this node unchanged
	sources  []netip.Prefix
}

// A family is the address family of one of the cluster IPs.
type family struct {
	cluster netip.Addr
	ipv6    bool
}

// families returns the families of the Service, in its order.
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

// address parses an address of a Service or endpoint; it records a refused one.
func (p *planner) address(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || !usable(a) {
		p.plan.Refused = append(p.plan.Refused, s)
		return netip.Addr{}, false
	}
	return a, true
}

// outside is address for external addresses. One in the service network would be, now or later, the
// cluster IP of another Service, whose clients would reach this one. The caller checks the addresses
// in Here.Reserved.
func (p *planner) outside(s string) (netip.Addr, bool) {
	a, ok := p.address(s)
	if ok && p.here.inServices(a) && !slices.Contains(p.svc.Spec.ClusterIPs, s) && s != p.svc.Spec.ClusterIP {
		p.plan.Refused = append(p.plan.Refused, s)
		return netip.Addr{}, false
	}
	return a, ok
}

// refuse records an address or port that belongs to the cluster itself.
func (p *planner) refuse(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if p.claims == nil {
		p.claims = map[string]bool{}
	}
	if !p.claims[text] {
		p.claims[text] = true
		p.claimed = append(p.claimed, text)
	}
}

// reportClaimed makes one fault of the addresses and ports that belong to the cluster itself.
func (p *planner) reportClaimed() {
	const most = 10 // a Service may have thousands
	if len(p.claimed) == 0 {
		return
	}
	text := strings.Join(p.claimed[:min(len(p.claimed), most)], "; ")
	if n := len(p.claimed) - most; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	p.fault("AddressRefused", "Connections to these addresses and ports of the Service are not forwarded, because a Service must not take the connections of others: %s", text)
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// usable reports whether an address may be that of a Service or endpoint. Addresses that mean this
// host, or another host on each link, must not be used: a user who may write EndpointSlices would
// reach servers that listen there because only local clients can connect.
func usable(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.Is4In6() && !a.IsUnspecified() && !a.IsLoopback() &&
		!a.IsLinkLocalUnicast() && !a.IsMulticast() && a != broadcast
}

// addresses finds the external addresses of a family, and the sources that may connect to them.
func (p *planner) addresses(f family) {
	p.external, p.balanced, p.sources = nil, nil, nil
	for _, s := range p.svc.Spec.ExternalIPs {
		a, ok := p.outside(s)
		if !ok || a.Is6() != f.ipv6 {
			continue
		}
		if of := p.here.Reserved.External(a); of != "" {
			p.refuse("%s in spec.externalIPs is an address of %s", a, of)
			continue
		}
		p.external = append(p.external, a)
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

// sourceRanges returns the networks that may connect to the addresses of load balancers. If all
// ranges of a Service are of the other family, only the address itself may, which this node may
// have.
func (p *planner) sourceRanges(f family) []netip.Prefix {
	ranges, where := p.svc.Spec.LoadBalancerSourceRanges, "spec.loadBalancerSourceRanges"
	if old, ok := p.svc.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]; len(ranges) == 0 && ok && strings.TrimSpace(old) != "" {
		ranges, where = strings.Split(old, ","), "the annotation "+corev1.AnnotationLoadBalancerSourceRangesKey
	}
	if len(ranges) == 0 {
		return nil
	}
	var sources []netip.Prefix
	near := false // whether this node itself may connect
	for _, s := range ranges {
		n, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil || n.Addr().Is4In6() {
			p.fault("InvalidSourceRange", "%s: must be a network such as 192.0.2.0/24, got %q; it is ignored", where, s)
			continue
		}
		if n.Addr().Is6() == f.ipv6 {
			sources = append(sources, n.Masked())
			near = near || slices.ContainsFunc(p.here.Addresses, n.Contains)
		}
	}
	if near || len(sources) == 0 {
		// The source of packets from this node to one of its own addresses is that address.
		for _, a := range p.balanced {
			sources = append(sources, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	sorting.Slice(sources, netip.Prefix.Compare)
	return slices.Compact(sources)
}

// spend records terminating endpoints that are spent, newly or since before. It reads each list of
// backends once: they are ascending, and so are the terminating endpoints.
func (p *planner) spend() {
	if len(p.leaving) == 0 {
		return
	}
	sorting.Slice(p.leaving, netip.Addr.Compare)
	p.leaving = slices.Compact(p.leaving)
	used := make([]bool, len(p.leaving))
	seen := map[*netip.AddrPort]bool{} // the first element of each list: the frontends of a port share theirs
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

// wasSpent reports whether the earlier plan had spent an endpoint.
func (p *planner) wasSpent(a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(p.spent, a, netip.Addr.Compare)
	return found
}

// port plans a port for a family. It adds ready endpoints of this node to local.
func (p *planner) port(f family, port *corev1.ServicePort, local map[netip.Addr]bool) {
	protocol := cmp.Or(port.Protocol, corev1.ProtocolTCP)
	if protocol != corev1.ProtocolTCP && protocol != corev1.ProtocolUDP && protocol != corev1.ProtocolSCTP {
		return
	}
	id := PortID{Service: types.NamespacedName{Namespace: p.svc.Namespace, Name: p.svc.Name}, Port: port.Name, Protocol: protocol, IPv6: f.ipv6}
	if p.ports[id] {
		return // duplicate port names: the API server rejects them
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
	r.frontend(f.cluster, port.Port, inLocal, false, MasqueradeForeign)
	outside := MasqueradeEverybody
	if outLocal {
		outside = MasqueradeNobody
	}
	for _, a := range p.external {
		r.frontend(a, port.Port, outLocal, true, outside)
	}
	sources := len(p.plan.Rules)
	for _, a := range p.balanced {
		if of := p.here.Reserved.Balanced(a, p.here.Own, protocol, port.Port); of != "" {
			p.refuse("%s in status.loadBalancer.ingress is an address of %s", a, of)
			continue
		}
		r.frontend(a, port.Port, outLocal, true, outside)
	}
	for i := range p.plan.Rules[sources:] {
		p.plan.Rules[sources+i].Sources = p.sources
	}
	switch {
	case port.NodePort == 0:
	case p.here.Own.Has(protocol, port.NodePort):
		p.refuse("node port %d/%s is a port of the cluster's own servers", port.NodePort, protocol)
	default:
		all, loopback := netip.IPv4Unspecified(), netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if f.ipv6 {
			all, loopback = netip.IPv6Unspecified(), netip.IPv6Loopback()
		}
		r.frontend(all, port.NodePort, outLocal, true, outside)
		if p.here.Loopback && protocol != corev1.ProtocolSCTP {
			r.relayed = true
			r.frontend(loopback, port.NodePort, false, true, MasqueradeNobody)
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
	used       [2]bool // pools that relayed rules lead to: all, local
}

// frontend adds the rule of an address. With local, connections go to endpoints of this node,
// except that connections from inside the cluster to an external frontend go to all.
func (r *router) frontend(a netip.Addr, port int32, local, outside bool, m Masquerade) {
	d := Frontend{Address: a, Protocol: r.id.Protocol, Port: uint16(port)}
	if port <= 0 || port > 65535 || r.frontends[d] {
		return
	}
	r.frontends[d] = true
	rule := PlannedRule{
		Rule: Rule{Frontend: d, Backends: r.all, Affinity: r.affinity, Masquerade: m, Relayed: r.relayed},
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
		if p.here.Own.Has(corev1.ProtocolTCP, s.HealthCheckNodePort) {
			p.refuse("health-check node port %d/TCP is a port of the cluster's own servers", s.HealthCheckNodePort)
			return
		}
		p.plan.Health = &Health{
			Service: types.NamespacedName{Namespace: p.svc.Namespace, Name: p.svc.Name}, Port: uint16(s.HealthCheckNodePort), Local: local,
		}
	}
}

// poolClass is the loadBalancerClass of Services that want an address only from this cluster's own
// pool.
const poolClass = names.Pool

// announce plans the addresses that this node may answer for: those of the cluster's own load
// balancer, and with externalTrafficPolicy Local only if an endpoint is on this node.
func (p *planner) announce() {
	spec := &p.svc.Spec
	if c := spec.LoadBalancerClass; c != nil && *c != poolClass || spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	if len(p.svc.Status.LoadBalancer.Ingress) == 0 {
		return
	}
	answered := map[netip.Addr]bool{}
	for i := range p.plan.Rules {
		if r := &p.plan.Rules[i]; !r.Drop {
			answered[r.Address] = true
		}
	}
	others := map[string]bool{}
	for _, ip := range slices.Concat(spec.ExternalIPs, spec.ClusterIPs) {
		others[ip] = true
	}
	for _, in := range p.svc.Status.LoadBalancer.Ingress {
		a, err := netip.ParseAddr(in.IP)
		if err != nil || !usable(a) || in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP || !answered[a] || others[in.IP] {
			continue
		}
		answered[a] = false // each once
		p.plan.Announced = append(p.plan.Announced, Announced{a, p.nodes(a.Is6())})
	}
}

// nodes returns the nodes that may answer for an address of a family, ascending; nil is all. With
// an externalTrafficPolicy of Local they are the nodes with endpoints, if there are any.
func (p *planner) nodes(ipv6 bool) []string {
	if p.svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return nil
	}
	f := 0
	if ipv6 {
		f = 1
	}
	for _, names := range []map[string]bool{p.homes[f], p.lastHomes[f]} {
		if len(names) > 0 {
			return slices.Sorted(maps.Keys(names))
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
