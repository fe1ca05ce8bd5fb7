package nft_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/proxy"
)

func TestAffinityLastsAsLongAsTheBackend(t *testing.T) {
	w := newWorld(t)
	w.servePods()
	pods := []*host{w.nodes[0].pods[0], w.nodes[1].pods[0], w.nodes[2].pods[0]}
	kinds(func(p corev1.Protocol, v6 bool) {
		r := proxy.Rule{
			Frontend: proxy.Frontend{Address: clusterIP(v6, 1), Protocol: p, Port: port}, Masquerade: proxy.MasqueradeForeign,
			Backends: backends(v6, pods...), Affinity: 3 * time.Hour,
		}
		w.start(r)
		from, at := w.nodes[0].pods[1], netip.AddrPortFrom(r.Address, port)
		only := func(not string) string {
			t.Helper()
			servers, _ := from.answers(p, at, 1)
			if len(servers) != 1 || servers[0] == not {
				t.Fatalf("%s %s: %q answered, want one that is not %q", p, at, servers, not)
			}
			return servers[0]
		}
		first := only("")
		w.start(r) // another process
		if again := only(""); again != first {
			t.Errorf("%s %s: after a restart %s answers, before it was %s", p, at, again, first)
		}
		now := r
		now.Backends = backends(v6, slices.DeleteFunc(slices.Clone(pods), func(h *host) bool { return h.name == first })...)
		w.update(proxy.Change{Was: r, Is: now})
		second := only(first)
		w.update(proxy.Change{Was: now, Is: r}) // the first one is back
		if again := only(""); again != second {
			t.Errorf("%s %s: %s answers, want %s still", p, at, again, second)
		}
		w.update(proxy.Change{Was: r})
	})
}

func TestAFlowOfUDPLeavesABackendThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.servePods()
	both(func(v6 bool) {
		for _, address := range []netip.Addr{clusterIP(v6, 1), anyAddress(v6)} {
			r := proxy.Rule{
				Frontend: proxy.Frontend{Address: address, Protocol: corev1.ProtocolUDP, Port: nodePort}, Masquerade: proxy.MasqueradeForeign,
				Backends: backends(v6, w.nodes[0].pods[0]),
			}
			moved := r
			moved.Backends = backends(v6, w.nodes[1].pods[0])
			none := r
			none.Backends = nil
			w.start(r)
			at := netip.AddrPortFrom(address, nodePort)
			if address.IsUnspecified() {
				at = netip.AddrPortFrom(w.nodes[0].ip[v6], nodePort)
			}
			c, err := w.nodes[0].pods[1].dial(corev1.ProtocolUDP, at)
			w.must(err)
			want := func(server string) {
				t.Helper()
				if got, err := talk(c); !strings.HasPrefix(got, server+" ") || err != nil {
					t.Errorf("%s: %q, %v, want an answer of %s", at, got, err, server)
				}
			}
			want("pod1a")
			w.update(proxy.Change{Was: r, Is: moved})
			want("pod2a")
			w.update(proxy.Change{Was: moved, Is: none})
			if got, err := talk(c); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("%s: %q, %v, want connection refused", at, got, err)
			}
			w.update(proxy.Change{Was: none, Is: r})
			want("pod1a")
			w.start(moved) // another process, which does not know what was before
			want("pod2a")
			w.update(proxy.Change{Was: moved})
			c.Close()
		}
	})
}

func TestEstablishedConnectionsNoticeNothing(t *testing.T) {
	w := newWorld(t)
	w.servePods()
	both(func(v6 bool) {
		r := proxy.Rule{
			Frontend: proxy.Frontend{Address: clusterIP(v6, 1), Protocol: corev1.ProtocolTCP, Port: port}, Masquerade: proxy.MasqueradeForeign,
			Backends: backends(v6, w.nodes[0].pods[0]),
		}
		moved := r
		moved.Backends = backends(v6, w.nodes[1].pods[0])
		w.start(r)
		var open []net.Conn
		for _, h := range []*host{w.client, w.nodes[0].pods[1], w.nodes[2].host, w.nodes[0].pods[0]} {
			c, err := h.dial(corev1.ProtocolTCP, netip.AddrPortFrom(r.Address, port))
			w.must(err)
			open = append(open, c)
		}
		still := func(when string) {
			t.Helper()
			for _, c := range open {
				if got, err := talk(c); !strings.HasPrefix(got, "pod1a ") || err != nil {
					t.Errorf("%s: %q, %v, want an answer of pod1a", when, got, err)
				}
			}
		}
		still("at first")
		w.update(proxy.Change{Was: r, Is: moved})
		still("after the backend was taken out")
		w.update(proxy.Change{Was: moved})
		still("after the frontend was taken out")
		w.start(moved)
		still("after another process took over")
		for _, c := range open {
			c.Close()
		}
	})
}

// TestNoConnectionFailsWhileRulesChange makes connections all the time while other processes
// take over, and backends come and go.
func TestNoConnectionFailsWhileRulesChange(t *testing.T) {
	w := newWorld(t)
	w.servePods()
	pods := []*host{w.nodes[0].pods[0], w.nodes[0].pods[1], w.nodes[1].pods[0], w.nodes[1].pods[1], w.nodes[2].pods[0]}
	r := proxy.Rule{
		Frontend: proxy.Frontend{Address: clusterIP(false, 1), Protocol: corev1.ProtocolTCP, Port: port}, Masquerade: proxy.MasqueradeForeign,
		Backends: backends(false, pods...),
	}
	w.start(r)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var made [2]int
	for i, from := range []*host{w.nodes[0].pods[1], w.nodes[0].host} {
		wg.Go(func() {
			from.do(func() {
				for ctx.Err() == nil {
					c, err := net.DialTimeout("tcp", netip.AddrPortFrom(r.Address, port).String(), 20*patience)
					if err == nil {
						_, err = talk(c)
						c.Close()
					}
					if err != nil {
						t.Error(err)
						return
					}
					made[i]++
				}
			})
		})
	}
	first := w.nodes[0]
	was := r
	for i := range 300 {
		if i%10 == 0 {
			first.kernel = w.kernel(0) // another process
			first.do(func() { w.must(first.kernel.Replace(t.Context(), []proxy.Rule{was})) })
			continue
		}
		is := r
		is.Backends = backends(false, pods[:1+i%len(pods)]...)
		first.do(func() { w.must(first.kernel.Update(t.Context(), []proxy.Change{{Was: was, Is: is}})) })
		was = is
	}
	stop()
	wg.Wait()
	if made[0] == 0 || made[1] == 0 {
		t.Errorf("%v connections were made, want some from each", made)
	}
	t.Log(made, "connections")
}

func TestFailedUpdateChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.servePods()
	n := w.nodes[0]
	good := proxy.Rule{
		Frontend: proxy.Frontend{Address: clusterIP(false, 1), Protocol: corev1.ProtocolTCP, Port: port},
		Backends: backends(false, n.pods[0]), Masquerade: proxy.MasqueradeForeign,
	}
	w.start(good)
	other := good
	other.Address = clusterIP(false, 2)
	bad := func(f func(r *proxy.Rule)) proxy.Rule { r := other; f(&r); return r }
	for want, change := range map[string]proxy.Change{
		"10.2.0.2 . TCP . 80":  {Was: other}, // it is not there
		"Port is 0":            {Is: bad(func(r *proxy.Rule) { r.Port = 0 })},
		"Protocol is \"ICMP\"": {Is: bad(func(r *proxy.Rule) { r.Protocol = "ICMP" })},
		"backend [fd00::1]:1":  {Is: bad(func(r *proxy.Rule) { r.Backends = []netip.AddrPort{netip.MustParseAddrPort("[fd00::1]:1")} })},
		"Address is invalid":   {Is: bad(func(r *proxy.Rule) { r.Address = netip.Addr{} })},
		"Affinity is -1s":      {Is: bad(func(r *proxy.Rule) { r.Affinity = -time.Second })},
	} {
		third := good
		third.Address = clusterIP(false, 3)
		n.do(func() {
			err := n.kernel.Update(t.Context(), []proxy.Change{{Was: good}, change, {Is: third}})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want an error with %q", err, want)
			}
		})
		n.pods[1].wantAnswers(corev1.ProtocolTCP, netip.AddrPortFrom(good.Address, port), "pod1a")
		n.pods[1].wantRefusal(corev1.ProtocolTCP, netip.AddrPortFrom(third.Address, port))
	}
	w.update(proxy.Change{Was: good, Is: proxy.Rule{Frontend: good.Frontend}})
	n.pods[1].wantRefusal(corev1.ProtocolTCP, netip.AddrPortFrom(good.Address, port))
}
