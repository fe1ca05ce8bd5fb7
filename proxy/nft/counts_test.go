package nft_test

import (
	"io"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/nft"
)

// tallies are what the kernel of the first node has counted.
func (w *world) tallies() (all map[proxy.Frontend]proxy.Tally) {
	w.t.Helper()
	n := w.nodes[0]
	n.do(func() {
		var err error
		all, err = n.kernel.Tallies(w.t.Context())
		w.must(err)
	})
	return all
}

// converse makes a connection and sends and hears so many datagrams, or pieces of a stream, of so many bytes.
func (h *host) converse(p corev1.Protocol, at netip.AddrPort, times, size int) {
	h.t.Helper()
	c, err := h.dial(p, at)
	if err != nil {
		h.t.Error(err)
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * patience))
	piece := make([]byte, size)
	for range times {
		if _, err := c.Write(piece); err != nil {
			h.t.Error(err)
			return
		}
		if _, err := io.ReadFull(c, piece); err != nil {
			h.t.Error(err)
			return
		}
	}
}

// TestCountersMatchTraffic checks that counted connections are the ones that were made, and
// counted bytes the ones of packets with data, exactly, for every kind of frontend and client,
// while backends change.
func TestCountersMatchTraffic(t *testing.T) {
	w := newWorld(t)
	n := w.nodes[0]
	a, b, c := n.pods[0], n.pods[1], w.nodes[1].pods[0]
	const times, size = 5, 1000
	w.client.do(func() { w.sysctl("net/ipv4/tcp_timestamps", "0") }) // another length of headers, of IPv6 too
	kinds(func(p corev1.Protocol, v6 bool) {
		for _, h := range []*host{a, b, c} {
			h.echo(p, netip.AddrPortFrom(h.ip[v6], target))
		}
		n.echo(p, netip.AddrPortFrom(podNet(v6, 1, 1).Addr(), target))
	})
	kinds(func(p corev1.Protocol, v6 bool) {
		frontend := func(a netip.Addr, port uint16) proxy.Frontend {
			return proxy.Frontend{Address: a, Protocol: p, Port: port}
		}
		rules := []proxy.Rule{
			{Frontend: frontend(clusterIP(v6, 1), port), Backends: backends(v6, a, c), Masquerade: proxy.MasqueradeForeign},
			{Frontend: frontend(clusterIP(v6, 2), port), Backends: backends(v6, a, c), Masquerade: proxy.MasqueradeForeign, Affinity: time.Hour},
			{Frontend: frontend(external(v6, 1), port), Backends: backends(v6, a), Inside: backends(v6, a, c)},
			{Frontend: frontend(anyAddress(v6), nodePort), Backends: backends(v6, a, c), Masquerade: proxy.MasqueradeEverybody},
			// A socket of the node, as that of a relay.
			{Frontend: frontend(clusterIP(v6, 3), port), Backends: []netip.AddrPort{netip.AddrPortFrom(podNet(v6, 1, 1).Addr(), target)}, Relayed: true},
		}
		w.start(rules...)
		made, carried := map[proxy.Frontend]uint64{}, map[proxy.Frontend]uint64{}
		header := func(from *host) uint64 {
			n := uint64(20 + 8)
			if p == corev1.ProtocolTCP {
				n = 20 + 20 + 12 // the time
			}
			if p == corev1.ProtocolTCP && from == w.client {
				n -= 12
			}
			if v6 {
				n += 20
			}
			return n
		}
		round := func() {
			for _, r := range rules {
				at := netip.AddrPortFrom(r.Address, r.Port)
				if r.Address.IsUnspecified() {
					at = netip.AddrPortFrom(n.ip[v6], r.Port)
				}
				for _, from := range []*host{a, b, n.host, w.client} { // of which one reaches itself
					from.converse(p, at, times, size)
					made[r.Frontend]++
					carried[r.Frontend] += times * (size + header(from))
				}
			}
		}
		check := func(when string) {
			t.Helper()
			got := w.tallies()
			if len(got) != len(rules) {
				t.Errorf("%s %s: something was counted at %d frontends, want %d: %+v", p, when, len(got), len(rules), got)
			}
			for d, n := range made {
				is := got[d]
				if is.Connections != n || is.Refused != 0 || is.Denied != 0 {
					t.Errorf("%v %s: %+v, want %d connections and none that was refused", d, when, is, n)
				}
				want := carried[d]
				for direction, bytes := range map[string]uint64{"in": is.In, "out": is.Out} {
					if bytes != want {
						t.Errorf("%v %s: %d bytes %s, want %d", d, when, bytes, direction, want)
					}
				}
			}
		}
		round()
		check("at first")
		for i := range rules {
			if rules[i].Relayed {
				continue
			}
			was := rules[i]
			rules[i].Backends = backends(v6, b, c)
			w.update(proxy.Change{Was: was, Is: rules[i]})
			was = rules[i]
			rules[i].Backends = backends(v6, b)
			w.update(proxy.Change{Was: was, Is: rules[i]})
		}
		round()
		check("after changes")
		n.do(func() { w.must(n.kernel.Replace(t.Context(), rules)) })
		round()
		check("after all was made anew")
		n.do(func() {
			w.must(nft.Remove(w.options.Table)) // as another program may
			w.must(n.kernel.Replace(t.Context(), rules))
		})
		check("after everything was removed")
		round()
		check("after everything was removed and made anew")

		gone := rules[0].Frontend
		for _, n := range w.nodes {
			n.do(func() { w.must(n.kernel.Update(t.Context(), []proxy.Change{{Was: rules[0]}})) })
		}
		var last map[proxy.Frontend]proxy.Tally
		before := w.tallies()[gone]
		n.do(func() {
			var err error
			last, err = n.kernel.Forget(t.Context(), []proxy.Frontend{gone, frontend(clusterIP(v6, 9), port)})
			w.must(err)
		})
		if len(last) != 1 || last[gone] != before {
			t.Errorf("%v: at the end there is %+v, want what there was: %+v", gone, last, before)
		}
		delete(made, gone)
		w.update(proxy.Change{Is: rules[0]})
		rules = rules[1:]
		check("without one")
		b.converse(p, netip.AddrPortFrom(gone.Address, gone.Port), times, size)
		if is := w.tallies()[gone]; is.Connections != 1 || is.In > size*times*2 {
			t.Errorf("%v: after it was forgotten there was one connection, counted is %+v", gone, is)
		}
		w.stop()
	})
}

func TestRefusalsAreCounted(t *testing.T) {
	w := newWorld(t)
	w.servePods()
	n := w.nodes[0]
	kinds(func(p corev1.Protocol, v6 bool) {
		frontend := func(n byte) proxy.Frontend {
			return proxy.Frontend{Address: external(v6, n), Protocol: p, Port: port}
		}
		none := proxy.Rule{Frontend: frontend(1)}
		dropped := proxy.Rule{Frontend: frontend(2), Drop: true, Inside: backends(v6, n.pods[0])}
		denied := proxy.Rule{Frontend: frontend(3), Backends: backends(v6, n.pods[0]), Sources: []netip.Prefix{podNet(v6, 1, 0).Masked()}, Masquerade: proxy.MasqueradeEverybody}
		open := proxy.Rule{Frontend: proxy.Frontend{Address: anyAddress(v6), Protocol: p, Port: nodePort}}
		w.start(none, dropped, denied, open)
		for range 3 {
			w.client.wantRefusal(p, netip.AddrPortFrom(none.Address, port))
			w.client.wantRefusal(p, netip.AddrPortFrom(n.ip[v6], nodePort))
		}
		w.client.wantRefusal(p, netip.AddrPortFrom(clusterIP(v6, 77), port)) // of no Service
		w.client.wantSilence(p, netip.AddrPortFrom(dropped.Address, port))
		w.client.wantSilence(p, netip.AddrPortFrom(denied.Address, port))
		n.pods[1].wantAnswers(p, netip.AddrPortFrom(denied.Address, port), "pod1a")
		got := w.tallies()
		if len(got) != 4 {
			t.Errorf("%s: counted is %+v, want something at four frontends", p, got)
		}
		for d, want := range map[proxy.Frontend]proxy.Tally{none.Frontend: {Refused: 3}, open.Frontend: {Refused: 3}} {
			if got[d] != want {
				t.Errorf("%v: counted is %+v, want %+v", d, got[d], want)
			}
		}
		// Clients send dropped packets again.
		if is := got[dropped.Frontend]; is.Refused == 0 || is.Refused > 3 || is.Connections != 0 {
			t.Errorf("%v: counted is %+v, want some refusals", dropped.Frontend, is)
		}
		// Two sockets, one after the other, may have had the same port: to UDP that is one flow.
		least := uint64(24)
		if p == corev1.ProtocolUDP {
			least = 20
		}
		if is := got[denied.Frontend]; is.Denied == 0 || is.Denied > 3 || is.Connections < least || is.Connections > 24 || is.Refused != 0 {
			t.Errorf("%v: counted is %+v, want some that were denied, and 24 connections", denied.Frontend, is)
		}
		w.stop()
	})
}

// TestTheProgramNftCanList checks that people can look at the table.
func TestTheProgramNftCanList(t *testing.T) {
	w := newWorld(t)
	w.servePods()
	n := w.nodes[0]
	var rules []proxy.Rule
	kinds(func(p corev1.Protocol, v6 bool) {
		all := backends(v6, n.pods[0], w.nodes[1].pods[0])
		for i, r := range []proxy.Rule{
			{Backends: all, Masquerade: proxy.MasqueradeForeign},
			{Backends: all, Affinity: time.Hour},
			{Backends: all[:1], Inside: all, Sources: externals},
			{},
		} {
			r.Frontend = proxy.Frontend{Address: clusterIP(v6, byte(i+1)), Protocol: p, Port: port}
			at := r
			at.Address = anyAddress(v6)
			at.Port += uint16(i)
			rules = append(rules, r, at)
		}
	})
	w.start(rules...)
	for _, r := range rules {
		if r.Protocol == corev1.ProtocolTCP && !r.Address.IsUnspecified() {
			_, _ = n.ask(r.Protocol, netip.AddrPortFrom(r.Address, r.Port))
		}
	}
	n.do(func() {
		out, err := exec.CommandContext(t.Context(), "nft", "list", "ruleset").CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		for _, want := range []string{"table inet sampan-test", "chain frontend4-2-foreign", "chain tally-postrouting", "10.2.0.1 . tcp . 80 . original counter packets"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("there is no %q in it", want)
			}
		}
		if t.Failed() || testing.Verbose() {
			t.Log(string(out))
		}
	})
}
