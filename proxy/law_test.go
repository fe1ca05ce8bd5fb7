package proxy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/proxy"
)

// What is drawn is mostly what servers store, or hardly ever would all of it go together, and
// now and then something odd.
var (
	goodAddresses = []string{"10.244.1.1", "10.244.1.2", "10.244.2.1", "10.244.2.2", "fd00:244::1", "fd00:244::2", "fd00:244::3"}
	oddAddresses  = []string{
		"10.96.3.3", "fd00:96::3",
		"127.0.0.1", "::1", "169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "::ffff:10.244.1.1", "fe80::1%eth0", "", "x",
	}
	serviceNetworks = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
)

// refusedAddress reports, independently of the planner, whether proxy-P2 refuses an address.
func refusedAddress(a netip.Addr) bool {
	for _, n := range []string{"127.0.0.0/8", "::1/128", "169.254.0.0/16", "fe80::/10", "0.0.0.0/32", "::/128", "224.0.0.0/4", "ff00::/8", "255.255.255.255/32", "::ffff:0:0/96"} {
		if netip.MustParsePrefix(n).Contains(a.WithZone("")) {
			return true
		}
	}
	return a.Zone() != ""
}

// mostly draws one of good, and now and then one of odd.
func mostly[T any](t *rapid.T, name string, good, odd []T) T {
	if len(odd) > 0 && rapid.IntRange(0, 9).Draw(t, name+" odd") == 9 {
		return rapid.SampledFrom(odd).Draw(t, name)
	}
	return rapid.SampledFrom(good).Draw(t, name)
}

func anyService(t *rapid.T) *corev1.Service {
	some := func(name string) (all []string) {
		for range rapid.IntRange(0, 3).Draw(t, name+"s") {
			all = append(all, mostly(t, name, goodAddresses, oddAddresses))
		}
		return all
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	s.Spec.Type = mostly(t, "type", []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}, []corev1.ServiceType{corev1.ServiceTypeExternalName})
	s.Spec.ClusterIPs = mostly(t, "ips", [][]string{{"10.96.0.1"}, {"fd00:96::1"}, {"10.96.0.1", "fd00:96::1"}, {"fd00:96::1", "10.96.0.1"}},
		[][]string{nil, {""}, {"None"}, {"127.0.0.1"}, {"10.96.0.1", "10.96.0.2"}, {"10.96.0.1", "127.0.0.1"}, {"", "fd00:96::1"}})
	if len(s.Spec.ClusterIPs) > 0 {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	s.Spec.ExternalIPs = some("external")
	for _, ip := range some("ingress") {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{
			IP: ip, IPMode: rapid.SampledFrom([]*corev1.LoadBalancerIPMode{nil, new(corev1.LoadBalancerIPModeVIP), new(corev1.LoadBalancerIPModeProxy)}).Draw(t, "mode"),
		})
	}
	for range rapid.IntRange(1, 3).Draw(t, "ports") {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name:     rapid.SampledFrom([]string{"", "a"}).Draw(t, "port"),
			Port:     mostly(t, "number", []int32{80, 81}, []int32{0, 70000}),
			Protocol: mostly(t, "protocol", []corev1.Protocol{"", "TCP", "UDP", "SCTP"}, []corev1.Protocol{"ICMP"}),
			NodePort: rapid.SampledFrom([]int32{0, 30080, 30081}).Draw(t, "nodePort"),
		})
	}
	if rapid.Bool().Draw(t, "internalLocal") {
		s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
	}
	if rapid.Bool().Draw(t, "externalLocal") {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.HealthCheckNodePort = 32000
	}
	if rapid.Bool().Draw(t, "affine") {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	s.Spec.LoadBalancerSourceRanges = rapid.SliceOfN(rapid.SampledFrom([]string{"198.51.100.0/24", "2001:db8::/32", "x"}), 0, 2).Draw(t, "sources")
	s.Annotations = rapid.MapOfN(
		rapid.SampledFrom([]string{proxy.ModeAnnotation, proxy.ProxyProtocolAnnotation, proxy.KeepClientAnnotation, proxy.MaxConnectionsAnnotation}),
		rapid.SampledFrom([]string{"userspace", "kernel", "v1", "true", "17", "", "x"}), 0, 2,
	).Draw(t, "annotations")
	return s
}

func anySlices(t *rapid.T) (all []*discoveryv1.EndpointSlice) {
	hinted, everyNode := rapid.Bool().Draw(t, "hinted"), rapid.Bool().Draw(t, "for nodes")
	for i := range rapid.IntRange(0, 4).Draw(t, "slices") {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("web-", i)},
			AddressType: mostly(t, "family", []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}, []discoveryv1.AddressType{discoveryv1.AddressTypeFQDN}),
		}
		if label := mostly(t, "label", []string{""}, []string{"service.kubernetes.io/headless", "service.kubernetes.io/service-proxy-name"}); label != "" {
			s.Labels = map[string]string{label: ""}
		}
		good := goodAddresses[:4]
		if s.AddressType == discoveryv1.AddressTypeIPv6 {
			good = goodAddresses[4:]
		}
		for _, p := range []corev1.Protocol{"TCP", "UDP", "SCTP"} {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{
				Name: new(rapid.SampledFrom([]string{"", "a"}).Draw(t, "port")), Protocol: &p, Port: new(mostly(t, "number", []int32{8080, 8081}, []int32{0, 70000})),
			})
		}
		for range rapid.IntRange(0, 5).Draw(t, "endpoints") {
			e := endpoint(mostly(t, "address", good, slices.Concat(oddAddresses, goodAddresses)), rapid.SampledFrom([]string{"unset", "rs", "st", "t", "s", "", "t?"}).Draw(t, "conditions"))
			if n := rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node"); n != "" {
				e.NodeName = &n
			}
			if z := mostly(t, "zone", []string{"a", "b"}, []string{""}); z != "" && hinted {
				e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: z}}}
				if n := mostly(t, "hint", []string{"n1", "n2"}, []string{""}); n != "" && everyNode {
					e.Hints.ForNodes = []discoveryv1.ForNode{{Name: n}}
				}
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		all = append(all, s)
	}
	return all
}

// TestLawsOfPlans holds whatever there is to the laws of the package.
func TestLawsOfPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		svc, all := anyService(t), anySlices(t)
		here := proxy.Here{Node: "n1", Zone: rapid.SampledFrom([]string{"", "a", "c"}).Draw(t, "here"), Services: serviceNetworks, Userspace: rapid.Bool().Draw(t, "userspace"), Loopback: rapid.Bool().Draw(t, "loopback")}
		p := proxy.NewPlan(svc, all, here)

		known := map[netip.Addr]bool{} // every address of an endpoint, and whether one of that address is here
		for _, s := range all {
			for _, e := range s.Endpoints {
				if a, err := netip.ParseAddr(e.Addresses[0]); err == nil {
					known[a] = known[a] || e.NodeName != nil && *e.NodeName == "n1"
				}
			}
		}
		backends := func(what string, d proxy.Frontend, as []netip.AddrPort, local bool) {
			if !slices.IsSortedFunc(as, netip.AddrPort.Compare) || len(slices.Compact(slices.Clone(as))) != len(as) {
				t.Fatalf("%s of %v are not ascending, each once: %v", what, d, as)
			}
			for _, a := range as {
				here, ok := known[a.Addr()]
				switch {
				case !ok:
					t.Fatalf("%s of %v has %v, which is no endpoint", what, d, a)
				case a.Addr().Is6() != d.Address.Is6():
					t.Fatalf("%s of %v has %v, of another family", what, d, a)
				case refusedAddress(a.Addr()), serviceNetworks[0].Contains(a.Addr()), serviceNetworks[1].Contains(a.Addr()), a.Port() == 0:
					t.Fatalf("proxy-P2: %s of %v has %v", what, d, a)
				case local && !here:
					t.Fatalf("proxy-P3: %s of %v has %v, of another node", what, d, a)
				}
			}
		}
		frontends := map[proxy.Frontend]bool{}
		for _, r := range p.Rules {
			if frontends[r.Frontend] {
				t.Fatalf("two rules for %v", r.Frontend)
			}
			frontends[r.Frontend] = true
			nodePort := r.Address.IsUnspecified()
			if r.Address.IsLoopback() {
				if !here.Loopback || !r.Relayed || !frontends[proxy.Frontend{Address: unspecified(r.Address), Protocol: r.Protocol, Port: r.Port}] {
					t.Fatalf("a rule for %v, which is no node port", r.Frontend)
				}
				nodePort = true
			}
			if !nodePort && refusedAddress(r.Address) || r.Port == 0 {
				t.Fatalf("proxy-P2: a rule for %v", r.Frontend)
			}
			cluster := !nodePort && slices.Contains(svc.Spec.ClusterIPs, r.Address.String())
			local := !r.Address.IsLoopback() && !cluster && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal || cluster && svc.Spec.InternalTrafficPolicy != nil
			backends("the backends", r.Frontend, r.Backends, local)
			backends("what is inside", r.Frontend, r.Inside, false)
			if r.Drop && (len(r.Backends) > 0 || !local) {
				t.Fatalf("%v is dropped with %v", r.Frontend, r.Backends)
			}
			if len(r.Inside) > 0 && (cluster || !local) {
				t.Fatalf("%v has a choice for those inside", r.Frontend)
			}
			if r.Relayed {
				if r.Protocol == corev1.ProtocolSCTP || r.Affinity != 0 || r.Masquerade != proxy.MasqueradeNobody {
					t.Fatalf("relayed: %+v", r.Rule)
				}
				for _, id := range []proxy.PoolID{r.Pool, {PortID: r.Pool.PortID}} {
					want := r.Inside
					if id == r.Pool {
						want = r.Backends
					}
					i := slices.IndexFunc(p.Pools, func(p proxy.Pool) bool { return p.PoolID == id })
					if len(want) > 0 && (i < 0 || !slices.Equal(p.Pools[i].Backends, want)) {
						t.Fatalf("the pool %+v of %v does not have %v", id, r.Frontend, want)
					}
				}
			}
			if balanced := !nodePort && slices.ContainsFunc(svc.Status.LoadBalancer.Ingress, func(in corev1.LoadBalancerIngress) bool { return in.IP == r.Address.String() }); balanced &&
				!slices.Contains(svc.Spec.ExternalIPs, r.Address.String()) && !cluster && len(svc.Spec.LoadBalancerSourceRanges) > 0 && len(r.Sources) == 0 {
				t.Fatalf("everybody may connect to %v", r.Frontend)
			}
			if nodePort && len(r.Sources) > 0 {
				t.Fatalf("source ranges hold for the node port %v", r.Frontend)
			}
		}
		for i, pool := range p.Pools {
			if slices.ContainsFunc(p.Pools[:i], func(q proxy.Pool) bool { return q.PoolID == pool.PoolID }) {
				t.Fatalf("two pools %+v", pool.PoolID)
			}
		}
		for _, a := range p.Announced {
			if refusedAddress(a.Address) || !slices.ContainsFunc(p.Rules, func(r proxy.PlannedRule) bool { return r.Address == a.Address }) {
				t.Fatalf("%v is announced", a.Address)
			}
		}
		var before []netip.Addr
		for _, a := range goodAddresses {
			if rapid.Bool().Draw(t, "spent") {
				before = append(before, netip.MustParseAddr(a))
			}
		}
		lawsOfSpent(t, before, all, proxy.NextPlan(before, svc, all, here))
		// The order of the slices, and of their endpoints, is nothing.
		slices.Reverse(all)
		for _, s := range all {
			slices.Reverse(s.Endpoints)
		}
		again := proxy.NewPlan(svc, all, here)
		if len(again.Rules) != len(p.Rules) {
			t.Fatalf("%d rules, and %d in another order", len(p.Rules), len(again.Rules))
		}
		for i := range p.Rules {
			if ruleText(p.Rules[i]) != ruleText(again.Rules[i]) || !slices.Equal(p.Rules[i].Backends, again.Rules[i].Backends) {
				t.Fatalf("in another order %s becomes %s", ruleText(p.Rules[i]), ruleText(again.Rules[i]))
			}
		}
	})
}

// lawsOfSpent checks the spent endpoints of a plan: they are exactly the terminating endpoints that
// no rule leads to or that were spent before.
func lawsOfSpent(t *rapid.T, before []netip.Addr, all []*discoveryv1.EndpointSlice, p proxy.Plan) {
	leaving, ready := map[netip.Addr]bool{}, map[netip.Addr]bool{} // in some slice, which may be another proxy's
	for _, s := range all {
		for _, e := range s.Endpoints {
			c := e.Conditions
			a, err := netip.ParseAddr(e.Addresses[0])
			switch {
			case err != nil:
			case c.Ready == nil || *c.Ready:
				ready[a] = true
			case (c.Serving == nil || *c.Serving) && c.Terminating != nil && *c.Terminating:
				leaving[a] = true
			}
		}
	}
	used := map[netip.Addr]bool{}
	for _, r := range p.Rules {
		for _, at := range slices.Concat(r.Backends, r.Inside) {
			used[at.Addr()] = true
		}
	}
	if !slices.IsSortedFunc(p.Spent, netip.Addr.Compare) || len(slices.Compact(slices.Clone(p.Spent))) != len(p.Spent) {
		t.Fatalf("what is spent is not ascending, each once: %v", p.Spent)
	}
	for _, a := range p.Spent {
		if !leaving[a] || used[a] && !slices.Contains(before, a) {
			t.Fatalf("%v is spent, terminating: %t, used: %t, before: %v", a, leaving[a], used[a], before)
		}
	}
	for a := range used {
		if leaving[a] && !ready[a] && slices.Contains(before, a) && !slices.Contains(p.Spent, a) {
			t.Fatalf("%v was spent before, and is no more", a)
		}
	}
}

// unspecified is the address of a family that stands for all.
func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
