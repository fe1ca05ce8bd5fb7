package proxy_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sampan-io/sampan/proxy"
)

// leavingSlices returns slices of 100 endpoints each, all of which terminate, and every second of which
// was spent before.
func leavingSlices(n int) (all []*discoveryv1.EndpointSlice, spent []netip.Addr) {
	for i := range n {
		if i%100 == 0 {
			all = append(all, slice("http", 8080))
		}
		a := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		last := all[len(all)-1]
		last.Endpoints = append(last.Endpoints, endpoint(a.String(), "st"))
		if i%2 == 0 {
			spent = append(spent, a)
		}
	}
	return all, spent
}

// BenchmarkPlanGrowth measures how a plan grows with the endpoints that terminate, as when a large
// deployment is taken down: ten times as many should cost about ten times as much.
func BenchmarkPlanGrowth(b *testing.B) {
	svc := service(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1", "192.0.2.2"} })
	few, spentFew := leavingSlices(1000)
	many, spentMany := leavingSlices(10000)
	var tFew, tMany time.Duration
	for b.Loop() {
		start := time.Now()
		for range 10 {
			proxy.NextPlan(spentFew, svc, few, proxy.Here{})
		}
		middle := time.Now()
		proxy.NextPlan(spentMany, svc, many, proxy.Here{})
		tFew += middle.Sub(start)
		tMany += time.Since(middle)
	}
	b.ReportMetric(10*float64(tMany)/float64(tFew), "x/10x-endpoints")
}

// TestSpentEndpointsOfMany has endpoints of which rules use a few, and finds the others.
func TestSpentEndpointsOfMany(t *testing.T) {
	all, spent := leavingSlices(1000)
	p := proxy.NextPlan(spent, service(nil), all, proxy.Here{})
	if len(p.Rules) != 1 || len(p.Rules[0].Backends) != 500 {
		t.Fatalf("rules: %v", len(p.Rules))
	}
	if fmt.Sprint(p.Spent) != fmt.Sprint(spent) {
		t.Errorf("%d are spent, want those %d of before", len(p.Spent), len(spent))
	}
}
