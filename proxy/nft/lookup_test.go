package nft_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/proxy"
)

func TestLookupReturnsKernelState(t *testing.T) {
	w := newWorld(t)
	node, pod := w.nodes[0], w.nodes[0].pods[0]
	const port, target = 80, 8080
	for _, n := range w.nodes {
		n.pods[1].serve(corev1.ProtocolTCP, target)
	}
	both(func(v6 bool) {
		var all []netip.AddrPort
		name := map[netip.AddrPort]string{}
		for _, n := range w.nodes {
			at := netip.AddrPortFrom(n.pods[1].ip[v6], target)
			all, name[at] = append(all, at), n.pods[1].name
		}
		frontend := func(a netip.Addr, p uint16) proxy.Frontend {
			return proxy.Frontend{Address: a, Protocol: corev1.ProtocolTCP, Port: p}
		}
		any := netip.IPv4Unspecified()
		if v6 {
			any = netip.IPv6Unspecified()
		}
		sticky := proxy.Rule{Frontend: frontend(clusterIP(v6, 1), port), Backends: all, Affinity: time.Hour}
		split := proxy.Rule{Frontend: frontend(any, 30080), Backends: all[:1], Inside: all}
		empty := proxy.Rule{Frontend: frontend(clusterIP(v6, 2), port)}
		w.start(sticky, split, empty)
		look := func(d proxy.Frontend) (seen proxy.Seen) {
			t.Helper()
			node.do(func() {
				var err error
				seen, err = node.kernel.Lookup(t.Context(), d, pod.ip[v6])
				w.must(err)
			})
			return seen
		}
		for _, r := range []proxy.Rule{sticky, split, empty} {
			if got := look(r.Frontend); !got.Found || !slices.Equal(got.Backends, r.Backends) || !slices.Equal(got.Inside, r.Inside) || got.Bound.IsValid() {
				t.Errorf("at %v there is %+v, want %+v", r.Frontend, got, r)
			}
		}
		if got := look(frontend(clusterIP(v6, 1), port+1)); got.Found {
			t.Errorf("at a frontend that is none there is %+v", got)
		}

		answer, err := pod.ask(corev1.ProtocolTCP, netip.AddrPortFrom(clusterIP(v6, 1), port))
		w.must(err)
		got := look(sticky.Frontend)
		if who, _, _ := strings.Cut(answer, " "); name[got.Bound] != who || got.Left <= 59*time.Minute || got.Left > time.Hour {
			t.Errorf("the client is bound to %v (%s) for %v, and %s answered; want that for an hour", got.Bound, name[got.Bound], got.Left, who)
		}
		without := sticky
		without.Backends = slices.DeleteFunc(slices.Clone(all), func(a netip.AddrPort) bool { return a == got.Bound })
		w.update(proxy.Change{Was: sticky, Is: without})
		if got := look(sticky.Frontend); got.Bound.IsValid() || !slices.Equal(got.Backends, without.Backends) {
			t.Errorf("after the backend went there is %+v, want %v and that the client is bound no more", got, without.Backends)
		}
	})
}
