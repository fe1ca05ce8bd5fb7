package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// somewhere is an address of either family.
func somewhere(t *rapid.T) netip.Addr {
	b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address")
	if rapid.Bool().Draw(t, "IPv4") {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16([16]byte(b))
}

var someNode = rapid.Custom(func(t *rapid.T) candidate {
	return candidate{
		node: fmt.Sprintf("node-%d", rapid.IntRange(0, 8).Draw(t, "node")),
		fit:  rapid.IntRange(0, 2).Draw(t, "fit") > 0, excluded: rapid.IntRange(0, 4).Draw(t, "excluded") == 0,
	}
})

// TestOneNodeAnswers checks what is to hold of any nodes: exactly one answers if any may, the order in which a node
// hears of the others does not matter, and when one goes, only its own addresses move.
func TestOneNodeAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfNDistinct(someNode, 0, 8, func(c candidate) string { return c.node }).Draw(t, "nodes")
		var only []string
		if rapid.Bool().Draw(t, "local") {
			only = rapid.SliceOfDistinct(rapid.SampledFrom([]string{"node-0", "node-1", "node-2", "node-9"}), rapid.ID).Draw(t, "only")
			if only == nil {
				only = []string{}
			}
		}
		a := somewhere(t)
		may := func(c candidate) bool { return !c.excluded && (only == nil || slices.Contains(only, c.node)) }
		got := answers(a, all, only)
		if got == "" != !slices.ContainsFunc(all, may) {
			t.Fatalf("%q answers", got)
		}
		again := slices.Clone(all)
		rand.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		if other := answers(a, again, only); other != got {
			t.Fatalf("in another order %q answers instead of %q", other, got)
		}
		if got == "" {
			return
		}
		winner := all[slices.IndexFunc(all, func(c candidate) bool { return c.node == got })]
		if !may(winner) {
			t.Fatalf("%q answers, which may not", got)
		}
		if !winner.fit && slices.ContainsFunc(all, func(c candidate) bool { return may(c) && c.fit }) {
			t.Fatalf("%q answers, which is not fit, and others are", got)
		}
		gone := rapid.SampledFrom(all).Draw(t, "gone")
		rest := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return c == gone })
		if next := answers(a, rest, only); next != got && gone.node != got {
			t.Fatalf("%q has gone, and the address moves from %q to %q", gone.node, got, next)
		}
	})
}

// Each node gets its share of the addresses that people use: neighbours.
func TestNodesGetFairShares(t *testing.T) {
	for _, first := range []string{"192.0.2.0", "10.255.0.0", "2001:db8::"} {
		for n := 2; n <= 7; n++ {
			var all []candidate
			for i := range n {
				all = append(all, candidate{node: fmt.Sprintf("node-%d", i+1), fit: true})
			}
			got := map[string]int{}
			const addresses = 2000
			a := netip.MustParseAddr(first)
			for range addresses {
				got[answers(a, all, nil)]++
				a = a.Next()
			}
			for _, c := range all {
				// Six times the standard deviation of a fair choice is less than a third for 7 nodes.
				if share := addresses / n; got[c.node] < share*2/3 || got[c.node] > share*4/3 {
					t.Errorf("%d of %d addresses from %s on are at %s, which is one of %d", got[c.node], addresses, first, c.node, n)
				}
			}
		}
	}
}

// A change of the function would have nodes of two versions answer for one address.
func TestAnswersAreStableAcrossVersions(t *testing.T) {
	all := []candidate{{node: "one", fit: true}, {node: "two", fit: true}, {node: "three", fit: true}}
	for a, want := range map[string]string{"192.0.2.1": "one", "192.0.2.3": "one", "192.0.2.9": "one", "2001:db8::1": "two", "2001:db8::9": "three"} {
		if got := answers(netip.MustParseAddr(a), all, nil); got != want {
			t.Errorf("%s is answered for by %q, want %q", a, got, want)
		}
	}
}
