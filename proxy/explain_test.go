package proxy_test

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/proxy"
)

// TestJudgementsAreWhatThePlanDoes holds explanations to the plan: the endpoints that are
// said to be backends are those of the rule, for clients inside and outside, and each
// endpoint is judged once.
func TestJudgementsAreWhatThePlanDoes(t *testing.T) {
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
					if j.Standing.Chosen() {
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
