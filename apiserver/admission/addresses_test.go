package admission_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
)

func newAddresses(t testing.TB, m *memory, ports admission.PortRange, networks ...string) *admission.ServiceAddresses {
	t.Helper()
	o := admission.AddressesOptions{Reader: m, NodePorts: ports}
	for _, n := range networks {
		o.Networks = append(o.Networks, netip.MustParsePrefix(n))
	}
	p, err := admission.NewServiceAddresses(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// service reads a service like "type=NodePort ip=10.0.0.9 ip=fd00::1 ports=80/TCP:30080,53/UDP
// policy=PreferDualStack families=IPv4 selector lb=no health=30001 local".
func service(name, text string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: meta("ship", name), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}}
	for word := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "type":
			s.Spec.Type = corev1.ServiceType(value)
		case "ip":
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, value)
			s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
		case "ips":
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, value)
		case "clusterIP":
			s.Spec.ClusterIP = value
		case "policy":
			policy := corev1.IPFamilyPolicy(value)
			s.Spec.IPFamilyPolicy = &policy
		case "families":
			for f := range strings.SplitSeq(value, ",") {
				s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPFamily(f))
			}
		case "selector":
			s.Spec.Selector = map[string]string{"app": "x"}
		case "lb":
			no := false
			s.Spec.AllocateLoadBalancerNodePorts = &no
		case "local":
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		case "health":
			fmt.Sscan(value, &s.Spec.HealthCheckNodePort)
		case "ports":
			for p := range strings.SplitSeq(value, ",") {
				var sp corev1.ServicePort
				ends, node, _ := strings.Cut(p, ":")
				port, protocol, _ := strings.Cut(ends, "/")
				sp.Protocol, sp.Name = corev1.Protocol(protocol), strings.ToLower("p"+port+protocol)
				fmt.Sscan(port, &sp.Port)
				fmt.Sscan(node, &sp.NodePort)
				s.Spec.Ports = append(s.Spec.Ports, sp)
			}
		}
	}
	return s
}

// shown prints a service in the same words.
func shown(s *corev1.Service) string {
	words := []string{"type=" + string(s.Spec.Type)}
	for _, ip := range s.Spec.ClusterIPs {
		words = append(words, "ip="+ip)
	}
	if len(s.Spec.ClusterIPs) > 0 && s.Spec.ClusterIP != s.Spec.ClusterIPs[0] || len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP != "" {
		words = append(words, "clusterIP="+s.Spec.ClusterIP)
	}
	if s.Spec.IPFamilyPolicy != nil {
		words = append(words, "policy="+string(*s.Spec.IPFamilyPolicy))
	}
	if len(s.Spec.IPFamilies) > 0 {
		words = append(words, strings.ReplaceAll(fmt.Sprintf("families=%v", s.Spec.IPFamilies), " ", ","))
	}
	var ports []string
	for _, p := range s.Spec.Ports {
		ports = append(ports, fmt.Sprintf("%d/%s:%d", p.Port, p.Protocol, p.NodePort))
	}
	if ports != nil {
		words = append(words, "ports="+strings.Join(ports, ","))
	}
	if s.Spec.HealthCheckNodePort != 0 {
		words = append(words, fmt.Sprintf("health=%d", s.Spec.HealthCheckNodePort))
	}
	return strings.NewReplacer("[", "", "]", "").Replace(strings.Join(words, " "))
}

// TestServiceAddresses gives services addresses from a network with exactly one
// free address left, 10.0.0.6, and one free node port, 30003.
func TestServiceAddresses(t *testing.T) {
	const taken = "10.0.0.2"
	tests := []struct {
		name      string
		old       string // empty: the service is created
		svc, want string
		refuse    string
	}{
		{name: "an address", svc: "", want: "type=ClusterIP ip=10.0.0.6 policy=SingleStack families=IPv4"},
		{name: "one that was asked for", svc: "ip=10.0.0.6", want: "type=ClusterIP ip=10.0.0.6 policy=SingleStack families=IPv4"},
		{name: "asked for in the old field", svc: "clusterIP=10.0.0.6", want: "type=ClusterIP ip=10.0.0.6 policy=SingleStack families=IPv4"},
		{name: "of another service", svc: "ip=" + taken, refuse: `spec.clusterIPs: Invalid value: ["10.0.0.2"]: failed to allocate IP 10.0.0.2: provided IP is already allocated`},
		{name: "the first is for kubernetes", svc: "ip=10.0.0.1", refuse: "provided IP is already allocated"},
		{name: "the network itself", svc: "ip=10.0.0.0", refuse: "not in the valid range. The range of valid IPs is 10.0.0.0/29"},
		{name: "broadcast", svc: "ip=10.0.0.7", refuse: "not in the valid range"},
		{name: "a foreign one", svc: "ip=10.0.1.2", refuse: "failed to allocate IP 10.0.1.2: the provided network does not match the current range"},
		{name: "of a family that is not there", svc: "ip=fd00::9", refuse: `spec.clusterIPs[0]: Invalid value: ["fd00::9"]: IPv6 is not configured on this cluster`},
		{name: "headless", svc: "ip=None selector", want: "type=ClusterIP ip=None policy=SingleStack families=IPv4"},
		{name: "headless without selector", svc: "ip=None", want: "type=ClusterIP ip=None policy=RequireDualStack families=IPv4,IPv6"},
		{name: "headless in the old field", svc: "clusterIP=None selector", want: "type=ClusterIP ip=None policy=SingleStack families=IPv4"},
		{name: "another name", svc: "type=ExternalName", want: "type=ExternalName"},
		{name: "two families wished for", svc: "policy=PreferDualStack", want: "type=ClusterIP ip=10.0.0.6 policy=PreferDualStack families=IPv4"},
		{name: "two families needed", svc: "policy=RequireDualStack", refuse: "this cluster is not configured for dual-stack services"},
		{name: "a family that is not there", svc: "families=IPv6", refuse: "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"},
		{name: "two families in one", svc: "policy=SingleStack families=IPv4,IPv6", refuse: "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"},

		{name: "a node port", svc: "type=NodePort ports=80/TCP", want: "type=NodePort ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:30003"},
		{name: "none without the type", svc: "ports=80/TCP", want: "type=ClusterIP ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:0"},
		{name: "shared by protocols", svc: "type=NodePort ports=53/TCP,53/UDP", want: "type=NodePort ip=10.0.0.6 policy=SingleStack families=IPv4 ports=53/TCP:30003,53/UDP:30003"},
		{name: "shared with one asked for", svc: "type=NodePort ports=53/TCP,53/UDP:30003", want: "type=NodePort ip=10.0.0.6 policy=SingleStack families=IPv4 ports=53/TCP:30003,53/UDP:30003"},
		{name: "of another service", svc: "type=NodePort ports=80/TCP:30000", refuse: "spec.ports[0].nodePort: Invalid value: 30000: provided port is already allocated"},
		{name: "out of range", svc: "type=NodePort ports=80/TCP:80", refuse: "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-30003"},
		{name: "everything that is wrong at once", svc: "type=NodePort ip=10.0.0.2 ports=80/TCP:80,81/TCP:30000", refuse: "spec.clusterIPs: Invalid value"},
		{name: "a load balancer without", svc: "type=LoadBalancer lb=no ports=80/TCP", want: "type=LoadBalancer ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:0"},
		{name: "a load balancer with a health check", svc: "type=LoadBalancer lb=no local ports=80/TCP", want: "type=LoadBalancer ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:0 health=30003"},
		{name: "no port left", svc: "type=NodePort ports=80/TCP,81/TCP", refuse: "failed to allocate a nodePort: range is full"},

		{
			name: "an update without addresses keeps them", old: "ip=10.0.0.6 policy=SingleStack families=IPv4",
			svc: "", want: "type=ClusterIP ip=10.0.0.6 policy=SingleStack families=IPv4",
		},
		{
			name: "an update without node ports keeps them", old: "type=NodePort ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:30003",
			svc: "type=NodePort ports=80/TCP", want: "type=NodePort ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:30003",
		},
		{
			name: "a port moves to another node port", old: "type=NodePort ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:30002",
			svc: "type=NodePort ports=80/TCP:30003", want: "type=NodePort ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:30003",
		},
		{
			name: "it becomes a node port", old: "ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP",
			svc: "type=NodePort ports=80/TCP", want: "type=NodePort ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:30003",
		},
		{
			name: "it is one no more", old: "type=NodePort ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:30003",
			svc: "ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:30003", want: "type=ClusterIP ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:0",
		},
		{
			name: "it is one no more, and has the port for another protocol", old: "type=NodePort ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:30003",
			svc: "ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:30003,80/UDP:30003", want: "type=ClusterIP ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:0,80/UDP:0",
		},
		{
			name: "a load balancer that wants no node ports any more", old: "type=LoadBalancer ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:30003",
			svc: "type=LoadBalancer lb=no ports=80/TCP", want: "type=LoadBalancer ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:0",
		},
		{
			name: "a health check goes with its policy", old: "type=LoadBalancer lb=no local ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP health=30003",
			svc: "type=LoadBalancer lb=no ports=80/TCP health=30003", want: "type=LoadBalancer ip=10.0.0.6 policy=SingleStack families=IPv4 ports=80/TCP:0",
		},
		{name: "addresses without the first", svc: "ips=10.0.0.6", refuse: "must be empty when `clusterIP` is not specified"},
		{
			name: "the first address changes", old: "ip=10.0.0.6 policy=SingleStack families=IPv4",
			svc: "clusterIP=10.0.0.3", want: "type=ClusterIP ip=10.0.0.3 policy=SingleStack families=IPv4", // which validation refuses
		},
		{
			name: "it becomes another name", old: "ip=10.0.0.6 policy=SingleStack families=IPv4",
			svc: "type=ExternalName ip=10.0.0.6 policy=SingleStack families=IPv4", want: "type=ExternalName",
		},
		{
			name: "it was another name", old: "type=ExternalName",
			svc: "", want: "type=ClusterIP ip=10.0.0.6 policy=SingleStack families=IPv4",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory(nil)
			for i, ip := range []string{taken, "10.0.0.3", "10.0.0.4", "10.0.0.5"} {
				m.put("services", service(fmt.Sprint("other-", i), "ip="+ip))
			}
			m.put("services", service("ported", "type=NodePort ip=None ports=80/TCP:30000,81/TCP:30001,82/TCP:30002"))
			p := newAddresses(t, m, admission.PortRange{First: 30000, Last: 30003}, "10.0.0.0/29")
			svc := service("s", tt.svc)
			a := creating(serviceKind(), svc)
			if tt.old != "" {
				a = updating(serviceKind(), svc, service("s", tt.old))
				m.put("services", service("s", tt.old))
				if strings.Contains(tt.old, "30002") { // then that one is not the other's
					m.put("services", service("ported", "type=NodePort ip=None ports=80/TCP:30000,81/TCP:30001"))
				}
			}
			err := p.Admit(t.Context(), a)
			a.Finish(false)
			if tt.refuse != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refuse) {
					t.Errorf("err = %v, want %q", err, tt.refuse)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, shown(svc)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestEveryFaultIsReported(t *testing.T) {
	m := newMemory(map[string]catalog.Object{"services/ship/o": service("o", "type=NodePort ip=10.0.0.2 ports=80/TCP:30000")})
	p := newAddresses(t, m, admission.PortRange{First: 30000, Last: 30003}, "10.0.0.0/29")
	err := p.Admit(t.Context(), creating(serviceKind(), service("s", "type=NodePort ip=10.0.0.2 ports=80/TCP:80,81/TCP:30000")))
	if !apierrors.IsInvalid(err) {
		t.Fatalf("err = %v, want Invalid", err)
	}
	for _, want := range []string{"spec.clusterIPs", "spec.ports[0].nodePort", "spec.ports[1].nodePort"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %s", err, want)
		}
	}
}

func TestTwoFamilies(t *testing.T) {
	tests := []struct {
		name, old, svc, want, refuse string
	}{
		{name: "the first unless asked", want: "policy=SingleStack families=IPv4"},
		{name: "the second if asked", svc: "families=IPv6", want: "policy=SingleStack families=IPv6"},
		{name: "both", svc: "policy=PreferDualStack", want: "policy=PreferDualStack families=IPv4,IPv6"},
		{name: "both, the other first", svc: "policy=RequireDualStack families=IPv6", want: "policy=RequireDualStack families=IPv6,IPv4"},
		{name: "by addresses", svc: "policy=RequireDualStack ip=fd00::9 ip=10.0.0.9", want: "policy=RequireDualStack families=IPv6,IPv4"},
		{name: "grown", old: "ip=10.0.0.9 policy=SingleStack families=IPv4", svc: "ip=10.0.0.9 policy=RequireDualStack families=IPv4", want: "policy=RequireDualStack families=IPv4,IPv6"},
		{name: "shrunk", old: "ip=10.0.0.9 ip=fd00::9 policy=RequireDualStack families=IPv4,IPv6", svc: "ip=10.0.0.9 ip=fd00::9 policy=SingleStack families=IPv4,IPv6", want: "policy=SingleStack families=IPv4"},
		{name: "shrunk without saying so", old: "ip=10.0.0.9 ip=fd00::9 policy=RequireDualStack families=IPv4,IPv6", svc: "ip=10.0.0.9 policy=RequireDualStack families=IPv4", refuse: "must be 'SingleStack' to release the secondary cluster IP"},
		{name: "a preference that is met by one stays", old: "ip=10.0.0.9 policy=PreferDualStack families=IPv4", svc: "ip=10.0.0.9 policy=PreferDualStack families=IPv4", want: "policy=PreferDualStack families=IPv4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newAddresses(t, newMemory(nil), admission.PortRange{}, "10.0.0.0/24", "fd00::/112")
			svc := service("s", tt.svc)
			a := creating(serviceKind(), svc)
			if tt.old != "" {
				a = updating(serviceKind(), svc, service("s", tt.old))
			}
			err := p.Admit(t.Context(), a)
			if tt.refuse != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refuse) {
					t.Errorf("err = %v, want %q", err, tt.refuse)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(svc.Spec.ClusterIPs) != len(svc.Spec.IPFamilies) || slices.Contains(svc.Spec.ClusterIPs, "") || svc.Spec.ClusterIP != svc.Spec.ClusterIPs[0] {
				t.Errorf("addresses %q for %q", svc.Spec.ClusterIPs, svc.Spec.IPFamilies)
			}
			bare := svc.DeepCopy()
			bare.Spec.ClusterIP, bare.Spec.ClusterIPs = "", nil
			if got := strings.TrimPrefix(shown(bare), "type=ClusterIP "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			for i, ip := range svc.Spec.ClusterIPs {
				if is4 := netip.MustParseAddr(ip).Is4(); is4 != (svc.Spec.IPFamilies[i] == corev1.IPv4Protocol) {
					t.Errorf("%s is not %s", ip, svc.Spec.IPFamilies[i])
				}
			}
		})
	}
}

// TestTheFirstAddressIsForKubernetes checks that only default/kubernetes gets the first address,
// even when that is the last free one.
func TestTheFirstAddressIsForKubernetes(t *testing.T) {
	m := newMemory(nil)
	p := newAddresses(t, m, admission.PortRange{}, "10.0.0.0/30") // .1 and .2
	first := service("a", "")
	if err := p.Admit(t.Context(), creating(serviceKind(), first)); err != nil || first.Spec.ClusterIP != "10.0.0.2" {
		t.Fatalf("the first service got %q, %v", first.Spec.ClusterIP, err)
	}
	m.put("services", first)
	if err := p.Admit(t.Context(), creating(serviceKind(), service("b", ""))); err == nil || !strings.Contains(err.Error(), "range is full") {
		t.Errorf("err = %v, want that the range is full", err)
	}
	own := service("kubernetes", "ip=10.0.0.1")
	own.Namespace = "default"
	if err := p.Admit(t.Context(), creating(serviceKind(), own)); err != nil {
		t.Error(err)
	}
}

func TestADryRunReservesNothing(t *testing.T) {
	p := newAddresses(t, newMemory(nil), admission.PortRange{}, "10.0.0.0/30")
	for range 3 {
		svc := service("s", "")
		a := creating(serviceKind(), svc)
		a.DryRun = true
		if err := p.Admit(t.Context(), a); err != nil || svc.Spec.ClusterIP != "10.0.0.2" || len(a.Done) > 0 {
			t.Fatalf("got %q, %v, %d to finish", svc.Spec.ClusterIP, err, len(a.Done))
		}
	}
}

// TestNothingIsGivenTwice lets random requests start, commit, fail and delete in
// any order, on networks so small that they run full, over a store with claims, and checks after each step that
// no address or port is at two services, that only free ones are found, and that what was freed comes back.
func TestNothingIsGivenTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMemory(nil)
		const addresses, ports = 5, 4 // beside the first address
		o := admission.AddressesOptions{Reader: m, Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/29")}, NodePorts: admission.PortRange{First: 30000, Last: 30003}}
		p, err := admission.NewServiceAddresses(o)
		if err != nil {
			t.Fatal(err)
		}
		under := map[string]*admission.Attributes{} // way, by name
		stored := func() []*corev1.Service {
			var all []*corev1.Service
			for _, o := range m.objects {
				all = append(all, o.(*corev1.Service))
			}
			slices.SortFunc(all, func(a, b *corev1.Service) int { return strings.Compare(a.Name, b.Name) })
			return all
		}
		used := func() (ips, nodePorts int) {
			has := map[string]string{}
			take := func(what, name string) {
				if other, twice := has[what]; twice && other != name {
					t.Fatalf("%s is at %s and at %s", what, other, name)
				} else if !twice && strings.HasPrefix(what, "3") {
					nodePorts++
				} else if !twice {
					ips++
				}
				has[what] = name
			}
			for _, s := range stored() {
				for _, ip := range s.Spec.ClusterIPs {
					take(ip, s.Name)
				}
				for _, sp := range s.Spec.Ports {
					if sp.NodePort != 0 {
						take(fmt.Sprint(sp.NodePort), s.Name)
					}
				}
			}
			return ips, nodePorts
		}
		made := 0
		types := rapid.SampledFrom([]string{"type=ClusterIP", "type=NodePort ports=80/TCP", "type=NodePort ports=80/TCP,81/TCP", "type=ExternalName"})
		admit := func(a *admission.Attributes, name string, wantIPs, wantPorts int) {
			ips, nodePorts := used()
			err := p.Admit(context.Background(), a)
			full := ips+wantIPs > addresses || nodePorts+wantPorts > ports
			switch {
			case err == nil && full:
				t.Fatalf("%s was admitted although %d addresses and %d ports are in use", name, ips, nodePorts)
			case err != nil && !full:
				t.Fatalf("%s was refused although %d addresses and %d ports are in use: %v", name, ips, nodePorts, err)
			case err != nil:
				a.Finish(false)
			default:
				for _, ip := range a.Object.(*corev1.Service).Spec.ClusterIPs {
					if old, _ := a.Old.(*corev1.Service); (old == nil || !slices.Contains(old.Spec.ClusterIPs, ip)) && slices.ContainsFunc(stored(), func(s *corev1.Service) bool { return slices.Contains(s.Spec.ClusterIPs, ip) }) {
						t.Fatalf("%s got %s, which is not free", name, ip)
					}
				}
				under[name] = a
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				made++
				svc := service(fmt.Sprint("s", made), types.Draw(t, "type"))
				ips := 1
				if svc.Spec.Type == corev1.ServiceTypeExternalName {
					ips = 0
				}
				nodePorts := len(svc.Spec.Ports)
				admit(creating(serviceKind(), svc), svc.Name, ips, nodePorts)
			},
			"retype": func(t *rapid.T) {
				all := slices.DeleteFunc(stored(), func(s *corev1.Service) bool { return under[s.Name] != nil })
				if len(all) == 0 {
					t.Skip("nothing to change")
				}
				old := rapid.SampledFrom(all).Draw(t, "service")
				svc := service(old.Name, types.Draw(t, "type"))
				ips, nodePorts := 0, 0
				if svc.Spec.Type != corev1.ServiceTypeExternalName && old.Spec.Type == corev1.ServiceTypeExternalName {
					ips = 1
				}
				for i := range svc.Spec.Ports {
					if old.Spec.Type != corev1.ServiceTypeNodePort || i >= len(old.Spec.Ports) {
						nodePorts++
					}
				}
				admit(updating(serviceKind(), svc, old), svc.Name, ips, nodePorts)
			},
			"commit": func(t *rapid.T) {
				if len(under) == 0 {
					t.Skip("nothing under way")
				}
				name := rapid.SampledFrom(slices.Sorted(maps.Keys(under))).Draw(t, "request")
				a := under[name]
				a.Finish(m.claim(a.Object.(*corev1.Service)))
				delete(under, name)
			},
			"fail": func(t *rapid.T) {
				if len(under) == 0 {
					t.Skip("nothing under way")
				}
				name := rapid.SampledFrom(slices.Sorted(maps.Keys(under))).Draw(t, "request")
				a := under[name]
				a.Finish(false)
				delete(under, name)
			},
			"delete": func(t *rapid.T) {
				all := slices.DeleteFunc(stored(), func(s *corev1.Service) bool { return under[s.Name] != nil })
				if len(all) == 0 {
					t.Skip("nothing to delete")
				}
				m.remove("services", "ship", rapid.SampledFrom(all).Draw(t, "service").Name)
			},
			"": func(*rapid.T) { used() },
		})
	})
}

// TestRequestsAtTheSameTime lets many requests ask at once for fewer addresses than
// they need, and again if another was first; exactly as many are served as there are.
func TestRequestsAtTheSameTime(t *testing.T) {
	m := newMemory(nil)
	p := newAddresses(t, m, admission.PortRange{}, "10.0.0.0/27") // 29 beside the first
	group := run.NewGroup(t.Context(), 0)
	defer group.Stop()
	var commit sync.Mutex
	for i := range 60 {
		group.Go(func(ctx context.Context) {
			for made := false; !made; {
				svc := service(fmt.Sprint("s", i), "")
				a := creating(serviceKind(), svc)
				if err := p.Admit(ctx, a); err != nil {
					a.Finish(false)
					return
				}
				commit.Lock()
				made = m.claim(svc)
				commit.Unlock()
				a.Finish(made)
			}
		})
	}
	group.Wait()
	has := map[string]bool{}
	for _, o := range m.objects {
		has[o.(*corev1.Service).Spec.ClusterIP] = true
	}
	if len(m.objects) != 29 || len(has) != 29 {
		t.Errorf("%d services have %d addresses, want 29 of each", len(m.objects), len(has))
	}
}
