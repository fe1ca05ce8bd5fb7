package test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/test/hosts"
)

// This file says what is to become of a connection to a Service, from what Kubernetes
// promises about Services and the network of package hosts. It shares nothing with the
// proxy.

const (
	servicePort = 80   // of each Service, TCP and UDP
	serverPort  = 8080 // of each pod
)

// A member is a pod as its EndpointSlice describes it.
type member struct {
	pod              string
	unready, leaving bool   // not ready; not ready, and it serves while it terminates
	zone             string // for which it is hinted at
	node             int    // and for which node; 0 is none
}

// A service is one row of the table: a Service and its members.
type service struct {
	name    string
	members []member

	nodePort, external, balanced bool // besides the cluster IP
	internalLocal, externalLocal bool // traffic policies
	sticky                       bool // session affinity
	onlyClient                   bool // loadBalancerSourceRanges
	headless, foreign            bool // foreign is another proxy's

	number    int // of its addresses and ports
	userspace bool
}

func members(pods ...string) (ms []member) {
	for _, p := range pods {
		ms = append(ms, member{pod: p})
	}
	return ms
}

func each(ms []member, do func(*member)) []member {
	for i := range ms {
		do(&ms[i])
	}
	return ms
}

// table has all kinds of Services. On node 1 pods a and b are members, on the others a.
func table() []service {
	everywhere := []string{"pod1a", "pod1b", "pod2a", "pod3a"}
	leave := func(m *member) { m.leaving = true }
	rows := []service{
		{name: "plain", members: members(everywhere...)},
		{name: "one", members: members("pod1a")},
		{name: "internal-local", internalLocal: true, members: members("pod1a", "pod1b", "pod2a")},
		{name: "empty"},
		{name: "unready", members: each(members(everywhere...), func(m *member) { m.unready = true })},
		{name: "leaving", members: each(members("pod1a", "pod2a"), leave)},
		{name: "some-leave", members: append(each(members("pod1a", "pod1b"), leave), member{pod: "pod2a"}, member{pod: "pod3a", unready: true})},
		{name: "zones", members: []member{{pod: "pod1a", zone: "left"}, {pod: "pod2a", zone: "left"}, {pod: "pod3a", zone: "right"}}},
		{name: "zones-half", members: []member{{pod: "pod1a", zone: "left"}, {pod: "pod3a"}}},
		{name: "nodes", members: []member{{pod: "pod1a", node: 1, zone: "left"}, {pod: "pod2a", node: 3, zone: "left"}, {pod: "pod3a", node: 3, zone: "right"}}},
		{name: "sticky", sticky: true, members: members(everywhere...)},
		{name: "node-port", nodePort: true, members: members(everywhere...)},
		{name: "node-port-local", nodePort: true, externalLocal: true, members: members("pod1a", "pod2a")},
		{name: "node-port-both-local", nodePort: true, internalLocal: true, externalLocal: true, members: members("pod1a", "pod2a")},
		{name: "node-port-empty", nodePort: true},
		{name: "node-port-local-empty", nodePort: true, externalLocal: true},
		{name: "external", external: true, members: members(everywhere...)},
		{name: "external-local", external: true, externalLocal: true, members: members("pod1a", "pod3a")},
		{name: "external-elsewhere", external: true, externalLocal: true, members: members("pod2a")},
		{name: "balanced", nodePort: true, balanced: true, members: members(everywhere...)},
		{name: "balanced-local", nodePort: true, balanced: true, externalLocal: true, members: members("pod1a", "pod1b")},
		{name: "balanced-local-sticky", nodePort: true, balanced: true, externalLocal: true, sticky: true, members: members("pod1a", "pod1b", "pod2a")},
		{name: "balanced-leaving", nodePort: true, balanced: true, externalLocal: true, members: append(each(members("pod1a"), leave), member{pod: "pod2a"})},
		{name: "ranges", nodePort: true, balanced: true, onlyClient: true, members: members(everywhere...)},
		{name: "headless", headless: true, members: members(everywhere...)},
		{name: "foreign", foreign: true, members: members(everywhere...)},
	}
	both := make([]service, 0, 2*len(rows))
	for i, s := range rows {
		s.number = i + 1
		both = append(both, s)
		s.number, s.userspace = i+51, true
		s.name += "-userspace"
		both = append(both, s)
	}
	return both
}

func (s *service) clusterIP(f int) netip.Addr { return hosts.At(hosts.Services[f], 256+s.number) }
func (s *service) outerIP(f int) netip.Addr   { return hosts.At(hosts.Externals[f], s.number) }
func (s *service) nodePorts() uint16          { return uint16(30000 + s.number) }
func (s *service) healthPort() uint16         { return uint16(31000 + s.number) }

// zoneOf is the zone of a node, counted from 1.
func zoneOf(node int) string { return []string{"left", "left", "right"}[node-1] }

// nodeOf is the node, counted from 1, of a pod or of itself; 0 is none.
func nodeOf(name string) int {
	for _, prefix := range []string{"pod", "node"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return int(rest[0] - '0')
		}
	}
	return 0
}

// A frontend is an address and port at which clients reach a Service.
type frontend struct {
	kind string // "cluster IP", "node port", "external IP", "load balancer"
	at   netip.AddrPort
	node int // whose address it is, of a node port
}

func (s *service) frontends(f int, nodes []*hosts.Node) (ds []frontend) {
	if s.headless {
		return nil
	}
	ds = append(ds, frontend{kind: "cluster IP", at: netip.AddrPortFrom(s.clusterIP(f), servicePort)})
	if s.external {
		ds = append(ds, frontend{kind: "external IP", at: netip.AddrPortFrom(s.outerIP(f), servicePort)})
	}
	if s.balanced {
		ds = append(ds, frontend{kind: "load balancer", at: netip.AddrPortFrom(s.outerIP(f), servicePort)})
	}
	if s.nodePort {
		for i, n := range nodes {
			ds = append(ds, frontend{kind: "node port", at: netip.AddrPortFrom(n.IP[f], s.nodePorts()), node: i + 1})
		}
	}
	return ds
}

// A want is what is to become of a connection.
type want struct {
	err     error    // what is wrong, as package hosts names it; nil if it is answered
	servers []string // who may answer; if it is not sticky, each of these does at times
	source  func(netip.Addr) bool
	sources string // in words
}

// expect says what is to become of a connection from a host to a Service, and on which
// node that is decided, counted from 1.
func (s *service) expect(w *hosts.World, from *hosts.Host, f int, d frontend) (want, int) {
	own := nodeOf(from.Name)
	at := own
	switch {
	case d.node != 0:
		at = d.node
	case own == 0:
		at = 1 // to which all routes from outside lead
	}
	if s.foreign {
		return want{err: hosts.ErrRefused}, at // an unused address of the service network
	}
	inside, pod := own == at, strings.HasPrefix(from.Name, "pod")
	if d.kind == "load balancer" && s.onlyClient && from != w.Client {
		return want{err: hosts.ErrSilent}, at
	}
	local := s.internalLocal
	if d.kind != "cluster IP" {
		local = s.externalLocal && !inside
	}
	all := s.serving(0, at)
	servers := all
	if local {
		servers = s.serving(at, at)
	}
	switch {
	case len(all) == 0:
		return want{err: hosts.ErrRefused}, at
	case len(servers) == 0:
		return want{err: hosts.ErrSilent}, at
	}
	keeps := pod // who connects to a cluster IP
	if d.kind != "cluster IP" {
		keeps = s.externalLocal && (!inside || pod)
	}
	to := want{servers: servers}
	ofNode := func(a netip.Addr) bool { return isOf(w, at, f, a) }
	if keeps && !s.userspace {
		to.sources = from.IP[f].String() + ", or an address of the node for what comes back to the same pod"
		to.source = func(a netip.Addr) bool { return a == from.IP[f] }
	} else {
		to.sources = fmt.Sprintf("an address of node%d", at)
		to.source = ofNode
	}
	return to, at
}

// isOf reports whether an address is one of a node.
func isOf(w *hosts.World, node, f int, a netip.Addr) bool {
	return a == w.Nodes[node-1].IP[f] || a == hosts.PodNetwork(f, node).Addr().Next() || a == hosts.ManagementAddress(node)
}

// serving returns the members that may answer connections decided on a node: all members, or
// those of that node.
func (s *service) serving(on, at int) []string {
	pick := func(want func(member) bool) (names []string) {
		for _, m := range s.members {
			if (on == 0 || nodeOf(m.pod) == on) && want(m) {
				names = append(names, m.pod)
			}
		}
		return names
	}
	ready := func(m member) bool { return !m.unready && !m.leaving }
	if on == 0 {
		noNode := slices.ContainsFunc(s.members, func(m member) bool { return ready(m) && m.node == 0 })
		if nearest := pick(func(m member) bool { return ready(m) && m.node == at }); !noNode && len(nearest) > 0 {
			return nearest
		}
		hinted := !slices.ContainsFunc(s.members, func(m member) bool { return ready(m) && m.zone == "" })
		near := pick(func(m member) bool { return ready(m) && m.zone == zoneOf(at) })
		if hinted && len(near) > 0 {
			return near
		}
	}
	if names := pick(ready); len(names) > 0 {
		return names
	}
	return pick(func(m member) bool { return m.leaving })
}

// check says what is wrong with an answer, or nothing.
func (to want) check(from *hosts.Host, got hosts.Answer, err error, ofNode func(netip.Addr) bool) error {
	switch {
	case to.err != nil && errors.Is(err, to.err):
		return nil
	case to.err != nil && err == nil:
		return fmt.Errorf("%s answered to %s, want %w", got.Server, got.Client, to.err)
	case to.err != nil:
		return fmt.Errorf("it was %w, want %w", err, to.err)
	case err != nil:
		return fmt.Errorf("it was %w, want an answer of %s", err, strings.Join(to.servers, ", "))
	case !slices.Contains(to.servers, got.Server):
		return fmt.Errorf("%s answered, want %s", got.Server, strings.Join(to.servers, ", "))
	case got.Server == from.Name && !ofNode(got.Client):
		return fmt.Errorf("%s saw itself come from %s, want an address of the node", got.Server, got.Client)
	case got.Server != from.Name && !to.source(got.Client):
		return fmt.Errorf("%s saw %s, want %s", got.Server, got.Client, to.sources)
	}
	return nil
}

// object is the Service, with addresses of so many families.
func (s *service) object(w *hosts.World, families int) *corev1.Service {
	o := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: metav1.NamespaceDefault, Annotations: map[string]string{"sampan.dev/proxy-mode": "kernel"}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, SessionAffinity: corev1.ServiceAffinityNone},
	}
	if s.userspace {
		o.Annotations["sampan.dev/proxy-mode"] = "userspace"
	}
	if s.foreign {
		o.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "somebody-else"}
	}
	if s.sticky {
		o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	if s.internalLocal {
		o.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}
	for f := range families {
		o.Spec.IPFamilies = append(o.Spec.IPFamilies, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}[f])
		if !s.headless {
			o.Spec.ClusterIPs = append(o.Spec.ClusterIPs, s.clusterIP(f).String())
		}
		if s.onlyClient {
			o.Spec.LoadBalancerSourceRanges = append(o.Spec.LoadBalancerSourceRanges, netip.PrefixFrom(w.Client.IP[f], w.Client.IP[f].BitLen()).String())
		}
		if s.external {
			o.Spec.ExternalIPs = append(o.Spec.ExternalIPs, s.outerIP(f).String())
		}
	}
	if s.headless {
		o.Spec.ClusterIPs = []string{corev1.ClusterIPNone}
	}
	o.Spec.ClusterIP = o.Spec.ClusterIPs[0]
	o.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicySingleStack)
	if families > 1 {
		o.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
	}
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		port := corev1.ServicePort{Name: strings.ToLower(string(p)), Protocol: p, Port: servicePort, TargetPort: intstr.FromInt32(serverPort)}
		if s.nodePort {
			port.NodePort = int32(s.nodePorts())
		}
		o.Spec.Ports = append(o.Spec.Ports, port)
	}
	switch {
	case s.balanced:
		o.Spec.Type = corev1.ServiceTypeLoadBalancer
	case s.nodePort:
		o.Spec.Type = corev1.ServiceTypeNodePort
	}
	if s.nodePort || s.external {
		o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if s.externalLocal {
		o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		if s.balanced {
			o.Spec.HealthCheckNodePort = int32(s.healthPort())
		}
	}
	return o
}

// status is the Service with what a cloud gave it.
func (s *service) status(o *corev1.Service, families int) *corev1.Service {
	o = o.DeepCopy()
	for f := range families {
		o.Status.LoadBalancer.Ingress = append(o.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{
			IP: s.outerIP(f).String(), IPMode: new(corev1.LoadBalancerIPModeVIP),
		})
	}
	return o
}

// slice is the EndpointSlice of a family.
func (s *service) slice(w *hosts.World, f int) *discoveryv1.EndpointSlice {
	kind := []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}[f]
	o := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.name + "-" + strings.ToLower(string(kind)), Namespace: metav1.NamespaceDefault, Labels: map[string]string{discoveryv1.LabelServiceName: s.name},
		},
		AddressType: kind,
		Endpoints:   []discoveryv1.Endpoint{},
	}
	if s.headless {
		o.Labels[corev1.IsHeadlessService] = ""
	}
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: new(strings.ToLower(string(p))), Protocol: new(p), Port: new(int32(serverPort))})
	}
	for _, m := range s.members {
		e := discoveryv1.Endpoint{
			Addresses:  []string{podOf(w, m.pod).IP[f].String()},
			NodeName:   new(fmt.Sprintf("node%d", nodeOf(m.pod))),
			Zone:       new(zoneOf(nodeOf(m.pod))),
			Conditions: discoveryv1.EndpointConditions{Ready: new(!m.unready && !m.leaving), Serving: new(!m.unready), Terminating: new(m.leaving)},
		}
		if m.zone != "" {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: m.zone}}}
		}
		if m.node != 0 {
			e.Hints.ForNodes = []discoveryv1.ForNode{{Name: fmt.Sprintf("node%d", m.node)}}
		}
		o.Endpoints = append(o.Endpoints, e)
	}
	return o
}

func podOf(w *hosts.World, name string) *hosts.Host {
	for _, n := range w.Nodes {
		for _, p := range n.Pods {
			if p.Name == name {
				return p
			}
		}
	}
	return nil
}
