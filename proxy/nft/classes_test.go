package nft

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/proxy"
)

// classesOf are options under which some classes always stand.
func classesOf(table string) Options {
	return Options{Table: table, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, Pods: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
}

func frontendOf(n int) proxy.Frontend {
	return proxy.Frontend{Address: netip.AddrFrom4([4]byte{10, 2, byte(n >> 8), byte(n)}), Protocol: corev1.ProtocolTCP, Port: 80}
}

var someBackend = []netip.AddrPort{netip.MustParseAddrPort("10.1.0.1:8080")}

// checkClasses compares the table with the kernel's content: each class has its chains, there are
// no others, and few unused ones (nft-N3).
func checkClasses(t *testing.T, when string, k *Kernel) {
	t.Helper()
	left, _, err := leftovers(k.opts.Table)
	if err != nil || left == nil {
		t.Fatalf("%s: %v, %v", when, left, err)
	}
	want := map[string]bool{accountingWasOff: true}
	for name := range hooks {
		want[name] = true
	}
	for _, name := range plainChains() {
		want[name] = true
	}
	idle, numbers := 0, map[uint32]bool{}
	for c, u := range k.classes {
		for _, name := range c.chains() {
			want[name] = true
		}
		if u.frontends < 0 || numbers[u.number] || !k.numbers[u.number] {
			t.Errorf("%s: class %s has %d frontends, and the number %d", when, c.chain(), u.frontends, u.number)
		}
		numbers[u.number] = true
		if u.frontends == 0 && !c.isStatic(k.opts) {
			if idle++; !slices.Contains(k.idle, c) {
				t.Errorf("%s: class %s has no frontends, and is not known to be idle", when, c.chain())
			}
		}
	}
	if idle > maxIdle || idle != len(k.idle) || len(k.numbers) != len(k.classes) {
		t.Errorf("%s: %d classes are idle, want %d at most; known are %d; %d numbers for %d classes", when, idle, maxIdle, len(k.idle), len(k.numbers), len(k.classes))
	}
	have := map[string]bool{accountingWasOff: true}
	for _, name := range left.chains {
		have[name] = true
	}
	if !maps.Equal(have, want) {
		for name := range have {
			if !want[name] {
				t.Errorf("%s: there is chain %s, which belongs to no class", when, name)
			}
		}
		for name := range want {
			if !have[name] {
				t.Errorf("%s: there is no chain %s", when, name)
			}
		}
	}
}

// TestUnusedClassesAreRemovedAndReused has more of them than are kept.
func TestUnusedClassesAreRemovedAndReused(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		k, err := New(classesOf("classes"))
		if err != nil {
			t.Fatal(err)
		}
		now := map[int]proxy.Rule{}
		update := func(when string, add bool, numbers ...int) {
			t.Helper()
			var changes []proxy.Change
			for _, n := range numbers {
				c := proxy.Change{Was: now[n]}
				if delete(now, n); add {
					c.Is = proxy.Rule{Frontend: frontendOf(n), Backends: someBackend, Affinity: time.Duration(n) * time.Second, Masquerade: proxy.MasqueradeForeign}
					now[n] = c.Is
				}
				changes = append(changes, c)
			}
			if err := k.Update(t.Context(), changes); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			checkClasses(t, when, k)
		}
		upTo := func(from, to int) (all []int) {
			for n := from; n <= to; n++ {
				all = append(all, n)
			}
			return all
		}
		if err := k.Replace(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		checkClasses(t, "at first", k)
		update("a class for each frontend", true, upTo(1, maxIdle+30)...)
		update("nobody uses them", false, upTo(1, maxIdle+30)...)
		if len(k.idle) != maxIdle {
			t.Errorf("%d classes are kept, want %d", len(k.idle), maxIdle)
		}
		var oldest []int // the next ones to be removed
		for _, c := range k.idle[:10] {
			oldest = append(oldest, int(c.affinity/time.Second))
		}
		update("some are used again", true, oldest...)
		update("others come", true, upTo(1001, 1000+maxIdle)...)
		update("and go", false, upTo(1001, 1000+maxIdle)...)
		for _, n := range oldest {
			if _, ok := k.classes[classOf(new(now[n]))]; !ok {
				t.Errorf("the class with an affinity of %d s is gone, and has a frontend", n)
			}
		}
		update("and those again", true, upTo(1, maxIdle+30)...)
		update("a second frontend of each", true, upTo(1, 5)...)
		update("all go", false, slices.Sorted(maps.Keys(now))...)
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestClassesWithOneHashHaveDistinctNumbers has two sets of sources whose classes want the same number.
func TestClassesWithOneHashHaveDistinctNumbers(t *testing.T) {
	rules := make([]proxy.Rule, 2)
	for i, sources := range []string{"10.36.37.0/24", "10.168.120.0/24"} {
		rules[i] = proxy.Rule{
			Frontend: frontendOf(i + 1), Backends: someBackend, Masquerade: proxy.MasqueradeEverybody,
			Sources: []netip.Prefix{netip.MustParsePrefix(sources)},
		}
	}
	if a, b := classOf(&rules[0]), classOf(&rules[1]); a.number() != b.number() || a == b {
		t.Fatal("the classes do not want the same number any more: other sources must be found for this test")
	}
	nstest.Run(t, func(t *testing.T) {
		for _, together := range []bool{true, false} {
			k, err := New(classesOf("hashes"))
			if err != nil {
				t.Fatal(err)
			}
			if err := k.Replace(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			batches := [][]proxy.Change{{{Is: rules[0]}}, {{Is: rules[1]}}}
			if together {
				batches = [][]proxy.Change{{{Is: rules[0]}, {Is: rules[1]}}}
			}
			for _, changes := range batches {
				if err := k.Update(t.Context(), changes); err != nil {
					t.Fatal(err)
				}
			}
			checkClasses(t, fmt.Sprintf("together %v", together), k)
			// Each keeps its number, in any order of their appearance.
			numbers := map[class]uint32{}
			for c, u := range k.classes {
				numbers[c] = u.number
			}
			if err := k.Update(t.Context(), []proxy.Change{{Was: rules[1]}}); err != nil {
				t.Fatal(err)
			}
			if err := k.Update(t.Context(), []proxy.Change{{Is: rules[1]}}); err != nil {
				t.Fatal(err)
			}
			for c, u := range k.classes {
				if numbers[c] != u.number {
					t.Errorf("class %s had the number %d, and now %d", c.chain(), numbers[c], u.number)
				}
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
