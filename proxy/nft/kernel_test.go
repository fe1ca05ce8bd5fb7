package nft_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/proxy"
)

var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}

func clusterIP(v6 bool, n byte) netip.Addr {
	a := serviceCIDRs[0].Addr()
	if v6 {
		a = serviceCIDRs[1].Addr()
	}
	b := a.AsSlice()
	b[len(b)-1] = n
	a, _ = netip.AddrFromSlice(b)
	return a
}

func TestEveryClientReachesAClusterIP(t *testing.T) {
	w := newWorld(t)
	const port, target = 80, 8080
	var rules []proxy.Rule
	for _, p := range protocols {
		for _, n := range w.nodes {
			for _, pod := range n.pods {
				pod.serve(p, target)
			}
		}
		both(func(v6 bool) {
			r := proxy.Rule{Door: proxy.Door{Address: clusterIP(v6, 1), Protocol: p, Port: port}, Masquerade: proxy.MasqueradeForeign}
			for _, n := range w.nodes {
				r.Backends = append(r.Backends, netip.AddrPortFrom(n.pods[0].ip[v6], target))
			}
			rules = append(rules, r)
		})
	}
	w.start(rules...)
	for _, r := range rules {
		for _, from := range []*host{w.nodes[0].pods[0], w.nodes[0].pods[1], w.nodes[1].pods[1], w.nodes[2].host, w.client} {
			seen := map[string]bool{}
			for range 30 {
				got, err := from.ask(r.Protocol, netip.AddrPortFrom(r.Address, port))
				if err != nil {
					t.Errorf("%s, %s, from %s: %v", r.Address, r.Protocol, from.name, err)
					break
				}
				name, _, _ := strings.Cut(got, " ")
				seen[name] = true
			}
			t.Log(r.Address, r.Protocol, from.name, seen)
			if len(seen) != len(r.Backends) {
				t.Errorf("%s, %s, from %s: only %v answered", r.Address, r.Protocol, from.name, seen)
			}
		}
	}
	for _, p := range protocols {
		both(func(v6 bool) {
			for _, from := range []*host{w.nodes[0].pods[0], w.nodes[0].host, w.client} {
				if got, err := from.ask(p, netip.AddrPortFrom(clusterIP(v6, 9), port)); !errors.Is(err, unix.ECONNREFUSED) {
					t.Errorf("%s, %s from %s: %q, %v, want connection refused", clusterIP(v6, 9), p, from.name, got, err)
				}
			}
		})
	}
}
