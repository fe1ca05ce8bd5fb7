package proxy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/reserved"
	"github.com/sampan-io/sampan/internal/storytest"
	"github.com/sampan-io/sampan/proxy"
)

// TestPlan plays the stories in testdata. They have a node, Services and slices of
// endpoints, and "plan" prints the plan for the most recently named Service.
//
//	node NAME [zone=Z] [addresses=A,…] [services=NET,…] [userspace] [loopback]
//	service NAME ips=A,… port=[NAME:]NUMBER[/PROTOCOL][@NODEPORT] [external=A,…] [ingress=A[/Proxy],…] …
//	slice [v6] port=[NAME:]NUMBER[/PROTOCOL] [label=NAME]
//	endpoint ADDRESS [node=N] [zones=Z,…] [nodes=N,…] [rst?]    (ready, serving, terminating; ? leaves serving unset)
//	annotate NAME=VALUE
//	label NAME=VALUE
func TestPlan(t *testing.T) {
	storytest.PlayCommands(t, "testdata", func(s *storytest.Story) storytest.Commands {
		return (&planStory{Story: s, here: proxy.Here{Node: "n1"}}).commands()
	})
}

type planStory struct {
	*storytest.Story
	here   proxy.Here
	svc    *corev1.Service
	slices []*discoveryv1.EndpointSlice
}

func (s *planStory) commands() storytest.Commands {
	return storytest.Commands{
		"node": s.node, "service": s.service, "slice": s.slice, "endpoint": s.endpoint, "plan": s.plan,
		"annotate": func(words []string) {
			name, value, _ := strings.Cut(strings.Join(words, " "), "=")
			s.svc.Annotations = map[string]string{name: value}
		},
		"annotate-also": func(words []string) {
			name, value, _ := strings.Cut(strings.Join(words, " "), "=")
			s.svc.Annotations[name] = value
		},
		"label": func(words []string) {
			name, value, _ := strings.Cut(words[0], "=")
			s.svc.Labels = map[string]string{name: value}
		},
	}
}

func list(value string) []string { return strings.Split(value, ",") }

func (s *planStory) node(words []string) {
	s.here = proxy.Here{Node: words[0]}
	storytest.Pairs(words[1:], func(name, value string, _ int32) {
		switch name {
		case "zone":
			s.here.Zone = value
		case "addresses":
			s.here.Addresses = addressesOf(value)
		case "services":
			for _, n := range list(value) {
				s.here.Services = append(s.here.Services, netip.MustParsePrefix(n))
			}
		case "nodes":
			s.here.Reserved.Nodes = addressesOf(value)
		case "servers":
			s.here.Reserved.Servers = addressesOf(value)
		case "host":
			s.here.Reserved.Host = addressesOf(value)
		case "resolvers":
			s.here.Reserved.Resolvers = addressesOf(value)
		case "gateways":
			s.here.Reserved.Gateways = addressesOf(value)
		case "pods":
			for _, n := range list(value) {
				s.here.Reserved.Pods = append(s.here.Reserved.Pods, netip.MustParsePrefix(n))
			}
		case "own":
			for _, port := range list(value) {
				_, number, protocol := s.port(port)
				s.here.Own = append(s.here.Own, reserved.Port{Protocol: protocol, Number: number})
			}
		case "userspace":
			s.here.Userspace = true
		case "loopback":
			s.here.Loopback = true
		default:
			s.T.Fatalf("unknown word %q", name)
		}
	})
}

func addressesOf(value string) []netip.Addr {
	var as []netip.Addr
	for _, a := range list(value) {
		as = append(as, netip.MustParseAddr(a))
	}
	return as
}

// port reads [NAME:]NUMBER[/PROTOCOL].
func (s *planStory) port(value string) (name string, number int32, protocol corev1.Protocol) {
	rest, proto, _ := strings.Cut(value, "/")
	name, digits, named := strings.Cut(rest, ":")
	if !named {
		name, digits = "", rest
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		s.T.Fatal(err)
	}
	return name, int32(n), corev1.Protocol(proto)
}

func (s *planStory) service(words []string) {
	s.slices = nil
	s.svc = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: words[0]}}
	spec := &s.svc.Spec
	spec.Type = corev1.ServiceTypeClusterIP
	storytest.Pairs(words[1:], func(name, value string, n int32) {
		switch name {
		case "type":
			spec.Type = corev1.ServiceType(value)
		case "ips":
			spec.ClusterIPs = list(value)
			spec.ClusterIP = spec.ClusterIPs[0]
		case "port":
			value, nodePort, _ := strings.Cut(value, "@")
			p := corev1.ServicePort{}
			p.Name, p.Port, p.Protocol = s.port(value)
			if nodePort != "" {
				_, p.NodePort, _ = s.port(nodePort)
			}
			spec.Ports = append(spec.Ports, p)
		case "external":
			spec.ExternalIPs = list(value)
		case "ingress":
			for _, in := range list(value) {
				ip, mode, ok := strings.Cut(in, "/")
				i := corev1.LoadBalancerIngress{IP: ip}
				if ok {
					i.IPMode = new(corev1.LoadBalancerIPMode(mode))
				}
				s.svc.Status.LoadBalancer.Ingress = append(s.svc.Status.LoadBalancer.Ingress, i)
			}
		case "class":
			spec.LoadBalancerClass = &value
		case "sources":
			spec.LoadBalancerSourceRanges = list(value)
		case "internal":
			spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicy(value))
		case "outside":
			spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicy(value)
		case "health":
			spec.HealthCheckNodePort = n
		case "affinity":
			spec.SessionAffinity = corev1.ServiceAffinityClientIP
			if n > 0 {
				spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &n}}
			}
		default:
			s.T.Fatalf("unknown word %q", name)
		}
	})
}

func (s *planStory) slice(words []string) {
	e := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	storytest.Pairs(words, func(name, value string, _ int32) {
		switch name {
		case "v6":
			e.AddressType = discoveryv1.AddressTypeIPv6
		case "port":
			n, number, protocol := s.port(value)
			p := discoveryv1.EndpointPort{Name: &n, Port: &number}
			if protocol != "" {
				p.Protocol = &protocol
			}
			e.Ports = append(e.Ports, p)
		case "label":
			e.Labels = map[string]string{value: ""}
		default:
			s.T.Fatalf("unknown word %q", name)
		}
	})
	s.slices = append(s.slices, e)
}

func (s *planStory) endpoint(words []string) {
	e := discoveryv1.Endpoint{Addresses: []string{words[0]}}
	storytest.Pairs(words[1:], func(name, value string, _ int32) {
		switch name {
		case "node":
			e.NodeName = &value
		case "zones", "nodes":
			if e.Hints == nil {
				e.Hints = &discoveryv1.EndpointHints{}
			}
			for _, v := range list(value) {
				if name == "zones" {
					e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: v})
				} else {
					e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: v})
				}
			}
		default: // which of ready, serving and terminating it is
			e.Conditions = endpoint("", name).Conditions
		}
	})
	last := s.slices[len(s.slices)-1]
	last.Endpoints = append(last.Endpoints, e)
}

func (s *planStory) plan([]string) {
	p := proxy.NewPlan(s.svc, s.slices, s.here)
	for _, r := range p.Rules {
		s.Say("%s", ruleText(r))
	}
	for _, pool := range p.Pools {
		text := fmt.Sprintf("pool %s → %s", poolText(pool.PoolID), backendText(pool.Backends))
		if pool.Affinity > 0 {
			text += fmt.Sprintf(", affinity %v", pool.Affinity)
		}
		if pool.MaxConnections > 0 {
			text += fmt.Sprintf(", at most %d", pool.MaxConnections)
		}
		if pool.ProxyProtocol > 0 {
			text += fmt.Sprintf(", PROXY v%d", pool.ProxyProtocol)
		}
		if pool.Transparent {
			text += ", transparent"
		}
		s.Say("%s", text)
	}
	if h := p.Health; h != nil {
		s.Say("health of %v at %d: %d here", h.Service, h.Port, h.Local)
	}
	if len(p.Announced) > 0 {
		var all []string
		for _, a := range p.Announced {
			all = append(all, a.Address.String())
			if a.Nodes != nil {
				all[len(all)-1] += " at " + strings.Join(a.Nodes, " or ")
			}
		}
		s.Say("announced: %v", all)
	}
	for _, f := range p.Faults {
		s.Say("%s: %s", f.Reason, f.Message)
	}
	if len(p.Refused) > 0 {
		s.Say("refused: %s", strings.Join(p.Refused, " "))
	}
	if len(p.Rules)+len(p.Pools)+len(p.Faults)+len(p.Refused) == 0 {
		s.Say("nothing")
	}
}

func poolText(id proxy.PoolID) string {
	text := id.Port + "/" + string(id.Protocol)
	if id.IPv6 {
		text += " v6"
	}
	if id.Local {
		text += " local"
	}
	return text
}

func backendText(as []netip.AddrPort) string {
	if len(as) == 0 {
		return "nobody"
	}
	var words []string
	for _, a := range as {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

func frontendText(d proxy.Frontend) string {
	return fmt.Sprintf("%v/%s", netip.AddrPortFrom(d.Address, d.Port), d.Protocol)
}

func ruleText(r proxy.PlannedRule) string {
	text := frontendText(r.Frontend) + " → "
	switch {
	case r.Relayed:
		text += "pool " + poolText(r.Pool)
		if len(r.Backends) == 0 {
			text += " (nobody)"
		}
	default:
		text += backendText(r.Backends)
	}
	if len(r.Inside) > 0 {
		text += ", inside " + backendText(r.Inside)
	}
	if r.Drop {
		text += ", dropped"
	}
	if r.Affinity > 0 {
		text += fmt.Sprintf(", affinity %v", r.Affinity)
	}
	if len(r.Sources) > 0 {
		text += fmt.Sprintf(", only %v", r.Sources)
	}
	return text + map[proxy.Masquerade]string{
		proxy.MasqueradeForeign: ", masquerade foreign", proxy.MasqueradeEverybody: ", masquerade",
	}[r.Masquerade]
}

// TestMissingSliceFieldsHaveDefaults has slices as no server of Sampan stores them: names,
// protocols, ports, conditions and addresses that are not there.
func TestMissingSliceFieldsHaveDefaults(t *testing.T) {
	nameless := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("none")}, {Port: new(int32(8080))}},
		Endpoints: []discoveryv1.Endpoint{
			{},
			{Addresses: []string{"10.244.0.3", "10.244.0.4"}},
			{Addresses: []string{"10.244.0.5"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
			{Addresses: []string{"10.244.0.6"}, NodeName: new("")},
		},
	}
	svc := service(func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{{Port: 80}, {Name: "none", Port: 81}}
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
		s.Spec.Ports[0].NodePort = 30080
	})
	var got []string
	for _, r := range proxy.NewPlan(svc, []*discoveryv1.EndpointSlice{nameless}, proxy.Here{}).Rules {
		got = append(got, ruleText(r))
	}
	want := []string{
		"10.0.0.1:80/TCP → nobody, dropped, masquerade foreign",
		"0.0.0.0:30080/TCP → 10.244.0.3:8080 10.244.0.6:8080, masquerade",
		"10.0.0.1:81/TCP → nobody, masquerade foreign",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rules:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestSpentEndpointsAreNotBroughtBack has all endpoints terminate, one after the other: the ones
// that were removed while another was ready may have received the signal to stop.
func TestSpentEndpointsAreNotBroughtBack(t *testing.T) {
	svc := service(nil)
	endpoints := func(conditions ...string) []*discoveryv1.EndpointSlice {
		s := slice("http", 8080)
		for i, c := range conditions {
			if c != "gone" {
				s.Endpoints = append(s.Endpoints, endpoint(fmt.Sprintf("10.244.0.%d", i+1), c))
			}
		}
		return []*discoveryv1.EndpointSlice{s}
	}
	var spent []netip.Addr
	for _, step := range []struct {
		conditions []string
		want       string // last bytes of backends, and after the bar of the spent ones
	}{
		{[]string{"rs", "rs", "rs"}, "1 2 3 |"},
		{[]string{"rs", "st", "st"}, "1 | 2 3"},
		{[]string{"st", "st", "st"}, "1 | 2 3"},
		{[]string{"st", "st", "st", "rs"}, "4 | 1 2 3"},
		{[]string{"st", "st", "gone", "st"}, "4 | 1 2"}, // 3 is forgotten
		{[]string{"st", "st", "st"}, "3 | 1 2"},
		{[]string{"st", "st", "t"}, "1 2 | 1 2"}, // better than none
		{[]string{"rs", "st"}, "1 | 2"},          // another pod with the address of the first
		{[]string{"t", "t"}, "|"},
		{[]string{"rst", "rs", "st"}, "1 2 | 3"}, // published although not ready: it serves to the end
		{[]string{"rst", "st", "st"}, "1 | 2 3"},
	} {
		p := proxy.NextPlan(spent, svc, endpoints(step.conditions...), proxy.Here{})
		var got []string
		for _, b := range p.Rules[0].Backends {
			got = append(got, fmt.Sprint(b.Addr().As4()[3]))
		}
		got = append(got, "|")
		for _, a := range p.Spent {
			got = append(got, fmt.Sprint(a.As4()[3]))
		}
		if strings.Join(got, " ") != step.want {
			t.Errorf("%v after %v: %s, want %s", step.conditions, spent, strings.Join(got, " "), step.want)
		}
		spent = p.Spent
	}
}
