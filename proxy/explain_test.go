package proxy_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/proxy"
)

// TestJudgementsMatchThePlan holds explanations to the plan: the endpoints that are
// said to be backends are those of the rule, for clients inside and outside, and each
// endpoint is judged once.
func TestJudgementsMatchThePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		svc, all, number := anyService(t), anySlices(t), 0
		for _, s := range all {
			number += len(s.Endpoints)
		}
		here := proxy.Here{Node: "n1", Zone: rapid.SampledFrom([]string{"", "a", "c"}).Draw(t, "here"), Services: serviceNetworks, Userspace: rapid.Bool().Draw(t, "userspace")}
		plan := proxy.NewPlan(svc, all, here)
		for i := range plan.Rules {
			r := &plan.Rules[i]
			for _, inside := range []bool{false, true} {
				want := r.Backends
				if inside && r.Inside != nil {
					want = r.Inside
				}
				var got []netip.AddrPort
				judged := proxy.JudgeEndpoints(svc, all, here, r, inside)
				for _, j := range judged {
					if j.Status.Chosen() {
						got = append(got, j.At)
					}
				}
				slices.SortFunc(got, netip.AddrPort.Compare)
				if got = slices.Compact(got); !slices.Equal(got, want) {
					t.Fatalf("inside %v: judged to be backends: %v, and the rule has %v", inside, got, want)
				}
				if len(judged) != number {
					t.Fatalf("%d judgements of %d endpoints", len(judged), number)
				}
			}
		}
	})
}

// TestJudgementsSayWhy has endpoints of every kind, for a node in zone a.
func TestJudgementsSayWhy(t *testing.T) {
	at := func(address, conditions, node string, zones ...string) discoveryv1.Endpoint {
		e := endpoint(address, conditions)
		e.NodeName = &node
		if len(zones) > 0 {
			e.Hints = &discoveryv1.EndpointHints{}
			for _, z := range zones {
				if n, ok := strings.CutPrefix(z, "node "); ok {
					e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: n})
				} else {
					e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: z})
				}
			}
		}
		return e
	}
	odd := func(change func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
		s := slice("http", 8080, at("10.1.0.9", "rs", "n1", "a"))
		change(s)
		return s
	}
	six := odd(func(s *discoveryv1.EndpointSlice) {
		s.AddressType, s.Endpoints = discoveryv1.AddressTypeIPv6, []discoveryv1.Endpoint{at("fd00::9", "rs", "n1", "a")}
	})
	local := func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal) }
	for _, tt := range []struct {
		name   string
		change func(*corev1.Service)
		slices []*discoveryv1.EndpointSlice
		want   []proxy.EndpointStatus
	}{
		{
			"some are ready", nil,
			[]*discoveryv1.EndpointSlice{slice("http", 8080,
				at("10.1.0.1", "rs", "n1"), at("10.1.0.2", "rs", "n2"), at("10.1.0.3", "st", "n1"), at("10.1.0.4", "t", "n1"), at("10.1.0.5", "", "n1"), at("127.0.0.1", "rs", "n1"))},
			[]proxy.EndpointStatus{proxy.Candidate, proxy.Candidate, proxy.Leaving, proxy.Terminating, proxy.NotReady, proxy.AddressRefused},
		},
		{
			"none is", nil,
			[]*discoveryv1.EndpointSlice{slice("http", 8080, at("10.1.0.1", "st", "n1"), at("10.1.0.2", "st", "n2", "b"), at("10.1.0.3", "t", "n1"), at("10.1.0.4", "s", "n1"))},
			[]proxy.EndpointStatus{proxy.LastResort, proxy.LastResort, proxy.Terminating, proxy.NotReady},
		},
		{
			"of this node", local,
			[]*discoveryv1.EndpointSlice{slice("http", 8080, at("10.1.0.1", "rs", "n1"), at("10.1.0.2", "rs", "n2"), at("10.1.0.3", "st", "n1"), at("10.1.0.4", "", "n2"))},
			[]proxy.EndpointStatus{proxy.Candidate, proxy.OnAnotherNode, proxy.Leaving, proxy.OnAnotherNode},
		},
		{
			"of this node none is ready", local,
			[]*discoveryv1.EndpointSlice{slice("http", 8080, at("10.1.0.1", "st", "n1", "b"), at("10.1.0.2", "rs", "n2"))},
			[]proxy.EndpointStatus{proxy.LastResort, proxy.OnAnotherNode},
		},
		{
			"of this node, whatever hints say", local,
			[]*discoveryv1.EndpointSlice{slice("http", 8080, at("10.1.0.1", "rs", "n1", "b"), at("10.1.0.2", "rs", "n2", "a"))},
			[]proxy.EndpointStatus{proxy.Candidate, proxy.OnAnotherNode},
		},
		{
			"of this zone", nil,
			[]*discoveryv1.EndpointSlice{slice("http", 8080, at("10.1.0.1", "rs", "n1", "a"), at("10.1.0.2", "rs", "n2", "b"), at("10.1.0.3", "st", "n1", "a"))},
			[]proxy.EndpointStatus{proxy.Candidate, proxy.ForAnotherZone, proxy.Leaving},
		},
		{
			"for this node", nil,
			[]*discoveryv1.EndpointSlice{slice("http", 8080, at("10.1.0.1", "rs", "n1", "a", "node n1"), at("10.1.0.2", "rs", "n2", "a", "node n2"))},
			[]proxy.EndpointStatus{proxy.Candidate, proxy.ForAnotherNode},
		},
		{"of other slices", nil, []*discoveryv1.EndpointSlice{
			odd(func(s *discoveryv1.EndpointSlice) { s.Labels["service.kubernetes.io/service-proxy-name"] = "other" }),
			six,
			odd(func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = new("https") }),
			slice("http", 8080, at("10.1.0.1", "st", "n1")),
		}, []proxy.EndpointStatus{proxy.OfAnotherProxy, proxy.OfAnotherFamily, proxy.WithoutPort, proxy.LastResort}},
	} {
		svc, here := service(tt.change), proxy.Here{Node: "n1", Zone: "a"}
		r := proxy.NewPlan(svc, tt.slices, here).Rules[0]
		var got []proxy.EndpointStatus
		for _, j := range proxy.JudgeEndpoints(svc, tt.slices, here, &r, false) {
			got = append(got, j.Status)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
