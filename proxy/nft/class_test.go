package nft

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sampan-io/sampan/proxy"
)

// TestClassesHaveDistinctChains tries classes that differ in one thing alone: rules of the one must
// not be where those of the other are.
func TestClassesHaveDistinctChains(t *testing.T) {
	seen := map[string]class{}
	for _, v6 := range []bool{false, true} {
		for _, node := range []bool{false, true} {
			for _, backends := range []int{0, 1, 2, 11} {
				for _, inside := range []int{-1, 0, 1, 2, 11} { // -1: clients inside are as others
					for _, affinity := range []time.Duration{0, time.Second, 11 * time.Second} {
						for _, sources := range []string{"", "sources4-0123456789abcdef", "sources4-fedcba9876543210"} {
							for _, drop := range []bool{false, true} {
								for _, l := range []leave{leaveAll, leaveLocal, leaveForeign, leaveEverybody} {
									c := class{v6: v6, node: node, backends: backends, split: inside >= 0, inside: max(inside, 0), affinity: affinity, sources: sources, drop: drop, leaving: l}
									for _, name := range c.chains() {
										if other, taken := seen[name]; taken {
											t.Fatalf("%+v and %+v both have the chain %s", c, other, name)
										}
										seen[name] = c
									}
								}
							}
						}
					}
				}
			}
		}
	}
}

// TestInvalidRulesAreRefused changes one thing of a rule at a time.
func TestInvalidRulesAreRefused(t *testing.T) {
	good := func() proxy.Rule {
		return proxy.Rule{
			Frontend: frontendOf(1), Backends: someBackend, Inside: someBackend, Masquerade: proxy.MasqueradeEverybody, Affinity: time.Second,
			Sources: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		}
	}
	address := netip.MustParseAddr
	one := func(text string) []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort(text)} }
	for _, tt := range []struct {
		want   string // in the error; "" is none
		change func(r *proxy.Rule)
	}{
		{"", func(*proxy.Rule) {}},
		{"", func(r *proxy.Rule) { *r = proxy.Rule{} }},
		{"Port is 0", func(r *proxy.Rule) { r.Port = 0 }},
		{"Port is 0", func(r *proxy.Rule) { *r = proxy.Rule{Backends: someBackend} }},
		{"Port is 0", func(r *proxy.Rule) { *r = proxy.Rule{Frontend: proxy.Frontend{Address: address("10.2.0.1")}} }},
		{"Address is invalid IP", func(r *proxy.Rule) { r.Address = netip.Addr{} }},
		{"Address is ::ffff:10.2.0.1", func(r *proxy.Rule) { r.Address = address("::ffff:10.2.0.1") }},
		{"Address is fe80::1%eth0", func(r *proxy.Rule) { r.Address = address("fe80::1%eth0") }},
		{`Protocol is ""`, func(r *proxy.Rule) { r.Protocol = "" }},
		{"Affinity is -1ns", func(r *proxy.Rule) { r.Affinity = -1 }},
		{"Masquerade is -1", func(r *proxy.Rule) { r.Masquerade = -1 }},
		{"Masquerade is 3", func(r *proxy.Rule) { r.Masquerade = proxy.MasqueradeEverybody + 1 }},
		{"", func(r *proxy.Rule) { r.Backends = many(insideSlots) }},
		{"more than 65536 Backends", func(r *proxy.Rule) { r.Backends = many(insideSlots + 1) }},
		{"more than 65536 Backends", func(r *proxy.Rule) { r.Inside = many(insideSlots + 1) }},
		{"backend 10.1.0.1:0", func(r *proxy.Rule) { r.Backends = one("10.1.0.1:0") }},
		{"backend [fd00::1]:1", func(r *proxy.Rule) { r.Inside = one("[fd00::1]:1") }},
		{"backend [::ffff:10.1.0.1]:1", func(r *proxy.Rule) {
			r.Address, r.Backends, r.Inside = address("fd00:2::1"), one("[::ffff:10.1.0.1]:1"), nil
		}},
		{"backend [fe80::1%eth0]:1", func(r *proxy.Rule) {
			r.Address, r.Backends, r.Inside = address("fd00:2::1"), one("[fe80::1%eth0]:1"), nil
		}},
		{"source invalid Prefix", func(r *proxy.Rule) { r.Sources = []netip.Prefix{{}} }},
		{"source ::ffff:192.0.2.0/120", func(r *proxy.Rule) { r.Sources = []netip.Prefix{netip.PrefixFrom(address("::ffff:192.0.2.0"), 120)} }},
	} {
		r := good()
		tt.change(&r)
		err := check(&r)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("check = %v, want %q", err, tt.want)
		}
	}
}

func many(n int) (all []netip.AddrPort) {
	a := netip.MustParseAddr("10.1.0.0")
	for range n {
		all, a = append(all, netip.AddrPortFrom(a, 80)), a.Next()
	}
	return all
}
