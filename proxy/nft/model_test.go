package nft

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	mdnetlink "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/internal/netfilter"
	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/proxy"
)

// contents reads the elements and rules of a table from the kernel, without chains of classes that
// have no frontend.
func contents(t *rapid.T, k *Kernel) map[string]bool {
	idle := map[string]bool{accountingWasOff: true} // which the first one alone has
	for c, u := range k.classes {
		if u.frontends == 0 {
			for _, name := range c.chains() {
				idle[name] = true
			}
			idle[string(number(u.number))] = true
			idle[c.sources] = true
		}
	}
	for c, u := range k.classes {
		if u.frontends > 0 {
			delete(idle, c.sources)
		}
	}
	left, _, err := leftovers(k.opts.Table)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := mdnetlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func(kind uint16, attrs ...mdnetlink.Attribute) (all []*mdnetlink.AttributeDecoder) {
		data, err := mdnetlink.MarshalAttributes(attrs)
		if err != nil {
			t.Fatal(err)
		}
		messages, err := conn.Execute(mdnetlink.Message{
			Header: mdnetlink.Header{Type: mdnetlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: mdnetlink.Request | mdnetlink.Dump},
			Data:   append([]byte{unix.NFPROTO_INET, 0, 0, 0}, data...),
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			if len(m.Data) > 4 {
				ad, err := mdnetlink.NewAttributeDecoder(m.Data[4:])
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, ad)
			}
		}
		return all
	}
	name := func(s string) []byte { return append([]byte(s), 0) }
	seen := map[string]bool{}
	for _, chain := range left.chains {
		if !idle[chain] {
			seen["chain "+chain] = true
		}
	}
	rules := map[string]int{}
	group := netfilter.AppendAttr(nil, unix.NFTA_LOG_GROUP, binary.BigEndian.AppendUint16(nil, resetGroup(k.opts.Table))...) // each table has one of its own
	for _, rule := range ask(unix.NFT_MSG_GETRULE, mdnetlink.Attribute{Type: unix.NFTA_RULE_TABLE, Data: name(k.opts.Table)}) {
		chain := ""
		for rule.Next() {
			switch rule.Type() {
			case unix.NFTA_RULE_CHAIN: // which comes first
				chain = rule.String()
			case unix.NFTA_RULE_EXPRESSIONS:
				if !idle[chain] {
					seen[fmt.Sprintf("rule %s %d %x", chain, rules[chain], bytes.ReplaceAll(rule.Bytes(), group, nil))] = true
					rules[chain]++
				}
			}
		}
	}
	for _, set := range left.sets {
		if idle[set] {
			continue
		}
		seen["set "+set] = true
		for _, m := range ask(unix.NFT_MSG_GETSETELEM,
			mdnetlink.Attribute{Type: unix.NFTA_SET_ELEM_LIST_TABLE, Data: name(k.opts.Table)},
			mdnetlink.Attribute{Type: unix.NFTA_SET_ELEM_LIST_SET, Data: name(set)}) {
			for m.Next() {
				if m.Type() != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
					continue
				}
				m.Nested(func(elements *mdnetlink.AttributeDecoder) error {
					for elements.Next() {
						b := elements.Bytes()
						const keyAt = 8 // the headers of the key and of its value
						if set == classes && idle[string(b[keyAt:keyAt+4])] {
							continue
						}
						seen[fmt.Sprintf("element %s %x", set, b)] = true
					}
					return nil
				})
			}
		}
	}
	return seen
}

// TestUpdatesAreAsGoodAsReplace checks the law that any sequence of updates leaves in the kernel what a
// Replace of the rules at its end makes there, in the place of nothing or of other rules.
func TestUpdatesAreAsGoodAsReplace(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		// Each change of a table has to wait for the kernel, so there are few cases with many changes each;
		// SAMPAN_RULES says how many in the long run.
		old := flag.Lookup("rapid.checks").Value.String()
		if err := flag.Set("rapid.checks", cmp.Or(os.Getenv("SAMPAN_RULES"), "20")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = flag.Set("rapid.checks", old) })
		frontends := []proxy.Frontend{}
		for _, a := range []string{"10.2.0.1", "10.2.0.2", "0.0.0.0", "fd00:2::1", "::"} {
			for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
				frontends = append(frontends, proxy.Frontend{Address: netip.MustParseAddr(a), Protocol: p, Port: 80})
			}
		}
		rule := rapid.Custom(func(t *rapid.T) proxy.Rule {
			r := proxy.Rule{Frontend: rapid.SampledFrom(frontends).Draw(t, "frontend")}
			backends := func(name string) (all []netip.AddrPort) {
				for i := range 12 {
					if rapid.Bool().Draw(t, name) {
						a := netip.AddrFrom4([4]byte{10, 1, 1, byte(i)})
						if r.Address.Is6() {
							a = netip.MustParseAddr(fmt.Sprintf("fd00:1::%x", i))
						}
						all = append(all, netip.AddrPortFrom(a, 8080))
					}
				}
				return all
			}
			if rapid.IntRange(0, 4).Draw(t, "none") > 0 {
				r.Backends = backends("backend")
			}
			if rapid.IntRange(0, 2).Draw(t, "split") == 0 {
				r.Inside = backends("inside")
			}
			r.Drop = rapid.Bool().Draw(t, "drop")
			r.Relayed = rapid.IntRange(0, 5).Draw(t, "relayed") == 0
			r.Affinity = rapid.SampledFrom([]time.Duration{0, 0, time.Second, time.Hour}).Draw(t, "affinity")
			r.Masquerade = rapid.SampledFrom([]proxy.Masquerade{proxy.MasqueradeNobody, proxy.MasqueradeForeign, proxy.MasqueradeEverybody}).Draw(t, "masquerade")
			sources := []netip.Prefix{
				netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.0.2.128/25"), netip.MustParsePrefix("255.0.0.0/8"),
				netip.MustParsePrefix("2001:db8::/32"),
			}
			r.Sources = sources[:rapid.IntRange(0, len(sources)).Draw(t, "sources")]
			return r
		})
		newKernel := func(table string) *Kernel {
			k, err := New(Options{
				Table: table, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")},
				Pods: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/29"), netip.MustParsePrefix("fd00:1::/64")},
			})
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		// To make a table and to remove it takes the kernel longer than all else here, so it is done once in a while.
		k, whole, cases, failed := newKernel("updated"), newKernel("replaced"), 0, false
		var now map[proxy.Frontend]proxy.Rule
		defer func() { _, _ = k.Close(), whole.Close() }()
		rapid.Check(t, func(t *rapid.T) {
			must := func(err error) {
				if err != nil {
					t.Fatal(err)
				}
			}
			switch cases++; {
			case cases == 10:
				must(k.Close())
				must(whole.Close())
				fallthrough
			case cases == 1, failed:
				must(k.Replace(t.Context(), nil))
			default: // unused classes are left, until there are too many
				var changes []proxy.Change
				for _, r := range now {
					changes = append(changes, proxy.Change{Was: r})
				}
				must(k.Update(t.Context(), changes))
			}
			failed = true // until the end: then what is tried again begins with nothing
			now = map[proxy.Frontend]proxy.Rule{}
			for range rapid.IntRange(1, 4).Draw(t, "updates") {
				var changes []proxy.Change
				for _, r := range rapid.SliceOfNDistinct(rule, 1, 12, func(r proxy.Rule) proxy.Frontend { return r.Frontend }).Draw(t, "rules") {
					was, there := now[r.Frontend]
					if there && rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
						changes = append(changes, proxy.Change{Was: was})
						delete(now, r.Frontend)
						continue
					}
					changes = append(changes, proxy.Change{Was: was, Is: r})
					now[r.Frontend] = r
				}
				must(k.Update(t.Context(), changes))
			}
			must(whole.Replace(t.Context(), slices.Collect(maps.Values(now))))
			got, want := contents(t, k), contents(t, whole)
			for x := range want {
				if !got[x] {
					t.Errorf("after updates, there is no %s", x)
				}
			}
			for x := range got {
				if !want[x] {
					t.Errorf("after updates, there still is %s", x)
				}
			}
			failed = t.Failed()
		})
	})
}
