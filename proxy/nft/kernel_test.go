package nft_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/nft"
)

const (
	port, target = 80, 8080 // of a frontend, and of servers
	nodePort     = 30080
)

var ipProtocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}

// kinds calls f for TCP and UDP over IPv4 and IPv6.
func kinds(f func(p corev1.Protocol, v6 bool)) {
	for _, p := range ipProtocols {
		both(func(v6 bool) { f(p, v6) })
	}
}

func numbered(in netip.Prefix, n byte) netip.Addr {
	b := in.Addr().AsSlice()
	b[len(b)-1] = n
	a, _ := netip.AddrFromSlice(b)
	return a
}

func pick[T any](of []T, v6 bool) T {
	if v6 {
		return of[1]
	}
	return of[0]
}

func clusterIP(v6 bool, n byte) netip.Addr { return numbered(pick(serviceCIDRs, v6), n) }

func external(v6 bool, n byte) netip.Addr { return numbered(pick(externals, v6), n) }

func anyAddress(v6 bool) netip.Addr {
	return everything(v6).Addr()
}

// servePods makes every pod a server.
func (w *world) servePods() {
	for _, n := range w.nodes {
		for _, pod := range n.pods {
			for _, p := range ipProtocols {
				pod.serve(p, target)
			}
		}
	}
}

// backends of pods, in ascending order.
func backends(v6 bool, pods ...*host) (all []netip.AddrPort) {
	for _, p := range pods {
		all = append(all, netip.AddrPortFrom(p.ip[v6], target))
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}

// answers asks a few times, and returns the servers that answered and the clients that they saw. It goes on for a while if fewer
// servers have answered than are expected.
func (h *host) answers(p corev1.Protocol, at netip.AddrPort, expected int) (servers, clients []string) {
	h.t.Helper()
	s, c := map[string]bool{}, map[string]bool{}
	// In 24 questions one of three servers is missed once in 5,000 times, in 120 never.
	for n := 0; n < 24 || n < 120 && len(s) < expected; n++ {
		got, err := h.ask(p, at)
		if err != nil {
			h.t.Errorf("%s from %s: %v", at, h.name, err)
			break
		}
		server, client, _ := strings.Cut(got, " ")
		s[server], c[client] = true, true
	}
	return slices.Sorted(maps.Keys(s)), slices.Sorted(maps.Keys(c))
}

// wantAnswers checks who answers. With clients, the servers see these; nil is not checked.
func (h *host) wantAnswers(p corev1.Protocol, at netip.AddrPort, servers string, clients ...netip.Addr) {
	h.t.Helper()
	gotServers, gotClients := h.answers(p, at, len(strings.Fields(servers)))
	if got := strings.Join(gotServers, " "); got != servers {
		h.t.Errorf("%s %s from %s: answered by %q, want %q", p, at, h.name, got, servers)
	}
	if clients == nil {
		return
	}
	var want []string
	for _, c := range clients {
		want = append(want, c.String())
	}
	slices.Sort(want)
	if !slices.Equal(gotClients, want) {
		h.t.Errorf("%s %s from %s: servers see %q, want %q", p, at, h.name, gotClients, want)
	}
}

func (h *host) wantRefusal(p corev1.Protocol, at netip.AddrPort) {
	h.t.Helper()
	if got, err := h.ask(p, at); !errors.Is(err, unix.ECONNREFUSED) {
		h.t.Errorf("%s %s from %s: %q, %v, want connection refused", p, at, h.name, got, err)
	}
}

// wantSilence checks that nothing answers, for a while.
func (h *host) wantSilence(p corev1.Protocol, at netip.AddrPort) {
	h.t.Helper()
	var got string
	c, err := h.dialFor(p, at, patience)
	if err == nil {
		got, err = talkFor(c, patience)
		c.Close()
	}
	if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
		h.t.Errorf("%s %s from %s: %q, %v, want no answer", p, at, h.name, got, err)
	}
}

func TestEveryClientReachesAClusterIP(t *testing.T) {
	w := newWorld(t)
	w.servePods()
	a, b, c := w.nodes[0].pods[0], w.nodes[1].pods[0], w.nodes[2].pods[0]
	var rules []proxy.Rule
	kinds(func(p corev1.Protocol, v6 bool) {
		rules = append(rules, proxy.Rule{
			Frontend: proxy.Frontend{Address: clusterIP(v6, 1), Protocol: p, Port: port}, Masquerade: proxy.MasqueradeForeign,
			Backends: backends(v6, a, b, c),
		})
	})
	w.start(rules...)
	kinds(func(p corev1.Protocol, v6 bool) {
		at := netip.AddrPortFrom(clusterIP(v6, 1), port)
		for _, pod := range []*host{w.nodes[0].pods[1], w.nodes[1].pods[1]} {
			pod.wantAnswers(p, at, "pod1a pod2a pod3a", pod.ip[v6])
		}
		w.nodes[2].wantAnswers(p, at, "pod1a pod2a pod3a")
		w.client.wantAnswers(p, at, "pod1a pod2a pod3a", w.nodes[0].ip[v6], podNet(v6, 1, 1).Addr())
		// A pod that reaches itself is seen as its node.
		a.wantAnswers(p, at, "pod1a pod2a pod3a", a.ip[v6], podNet(v6, 1, 1).Addr())
		for _, from := range []*host{a, w.nodes[0].host, w.client} {
			from.wantRefusal(p, netip.AddrPortFrom(clusterIP(v6, 1), port+1))
			from.wantRefusal(p, netip.AddrPortFrom(clusterIP(v6, 9), port))
		}
	})
}

// TestOtherNetworksOfClusterIPs are known from the next Replace on, and connections go on.
func TestOtherNetworksOfClusterIPs(t *testing.T) {
	w := newWorld(t)
	w.options.ServiceCIDRs = nil
	w.servePods()
	a := w.nodes[0].pods[0]
	both(func(v6 bool) {
		frontend := proxy.Frontend{Address: clusterIP(v6, 1), Protocol: corev1.ProtocolTCP, Port: port}
		rule := proxy.Rule{Frontend: frontend, Masquerade: proxy.MasqueradeForeign, Backends: backends(v6, w.nodes[1].pods[0])}
		w.start(rule)
		k := w.nodes[0].kernel
		at, unused := netip.AddrPortFrom(clusterIP(v6, 1), port), netip.AddrPortFrom(clusterIP(v6, 9), port)
		c, err := a.dial(corev1.ProtocolTCP, at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		unrefused := func() {
			t.Helper()
			if _, err := a.ask(corev1.ProtocolTCP, unused); errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("%s is refused", unused)
			}
		}
		unrefused()
		k.SetServiceCIDRs(append([]netip.Prefix{{}}, serviceCIDRs...))
		more := rule
		more.Port++
		w.nodes[0].do(func() { w.must(k.Update(t.Context(), []proxy.Change{{Is: more}})) }) // as before
		unrefused()
		w.nodes[0].do(func() { w.must(k.Replace(t.Context(), []proxy.Rule{rule})) })
		a.wantRefusal(corev1.ProtocolTCP, unused)
		a.wantAnswers(corev1.ProtocolTCP, at, "pod2a", a.ip[v6])
		w.nodes[0].do(func() { w.must(k.Update(t.Context(), []proxy.Change{{Is: more}})) })
		a.wantAnswers(corev1.ProtocolTCP, netip.AddrPortFrom(at.Addr(), port+1), "pod2a", a.ip[v6])
		k.SetServiceCIDRs(nil)
		w.nodes[0].do(func() { w.must(k.Replace(t.Context(), []proxy.Rule{rule})) })
		unrefused()
		if got, err := talk(c); err != nil || !strings.HasPrefix(got, "pod2a") {
			t.Errorf("the connection that was there before: %q, %v", got, err)
		}
	})
}

func TestNodePortsAreAtEveryAddressButLoopback(t *testing.T) {
	w := newWorld(t)
	w.servePods()
	a, b, c := w.nodes[0].pods[0], w.nodes[1].pods[0], w.nodes[2].pods[0]
	var rules []proxy.Rule
	kinds(func(p corev1.Protocol, v6 bool) {
		rules = append(rules,
			proxy.Rule{
				Frontend: proxy.Frontend{Address: anyAddress(v6), Protocol: p, Port: nodePort}, Masquerade: proxy.MasqueradeEverybody,
				Backends: backends(v6, b, c),
			},
			proxy.Rule{Frontend: proxy.Frontend{Address: anyAddress(v6), Protocol: p, Port: nodePort + 1}})
	})
	w.start(rules...)
	kinds(func(p corev1.Protocol, v6 bool) {
		first := w.nodes[0]
		at := netip.AddrPortFrom(first.ip[v6], nodePort)
		w.client.wantAnswers(p, at, "pod2a pod3a", first.ip[v6])
		a.wantAnswers(p, at, "pod2a pod3a", first.ip[v6])
		c.wantAnswers(p, at, "pod2a pod3a", first.ip[v6])
		first.wantAnswers(p, at, "pod2a pod3a", first.ip[v6])
		a.wantAnswers(p, netip.AddrPortFrom(podNet(v6, 1, 1).Addr(), nodePort), "pod2a pod3a")
		for _, from := range []*host{w.client, a, first.host} {
			from.wantRefusal(p, netip.AddrPortFrom(first.ip[v6], nodePort+1))
		}
		loopback := netip.MustParseAddr("127.0.0.1")
		if v6 {
			loopback = netip.IPv6Loopback()
		}
		first.serve(p, nodePort, loopback)
		first.wantAnswers(p, netip.AddrPortFrom(loopback, nodePort), "node1")
	})

	w.options.NodePortAddresses = []netip.Prefix{wire(false, 0).Masked(), podNet(true, 1, 0).Masked()}
	w.start(rules...)
	for _, p := range ipProtocols {
		a.wantAnswers(p, netip.AddrPortFrom(w.nodes[0].ip[false], nodePort), "pod2a pod3a")
		a.wantRefusal(p, netip.AddrPortFrom(podNet(false, 1, 1).Addr(), nodePort)) // no server listens
		a.wantAnswers(p, netip.AddrPortFrom(podNet(true, 1, 1).Addr(), nodePort), "pod2a pod3a")
		a.wantRefusal(p, netip.AddrPortFrom(w.nodes[0].ip[true], nodePort))
	}
}

func TestClientsInsideHaveSeparateBackends(t *testing.T) {
	w := newWorld(t)
	w.servePods()
	a, b, c := w.nodes[0].pods[0], w.nodes[1].pods[0], w.nodes[2].pods[0]
	var rules []proxy.Rule
	kinds(func(p corev1.Protocol, v6 bool) {
		for _, affinity := range []time.Duration{0, time.Hour} {
			local := proxy.Rule{
				Frontend: proxy.Frontend{Address: external(v6, 1), Protocol: p, Port: port},
				Backends: backends(v6, a), Inside: backends(v6, a, b, c), Affinity: affinity,
			}
			if affinity > 0 {
				local.Port++
			}
			none := local
			none.Address, none.Backends, none.Drop = external(v6, 2), nil, true
			refused := none
			refused.Address, refused.Drop = external(v6, 3), false
			rules = append(rules, local, none, refused)
		}
	})
	w.start(rules...)
	kinds(func(p corev1.Protocol, v6 bool) {
		local, none, refused := external(v6, 1), external(v6, 2), external(v6, 3)
		pod := w.nodes[0].pods[1]
		w.client.wantAnswers(p, netip.AddrPortFrom(local, port), "pod1a", w.client.ip[v6])
		w.client.wantAnswers(p, netip.AddrPortFrom(local, port+1), "pod1a", w.client.ip[v6])
		w.client.wantSilence(p, netip.AddrPortFrom(none, port))
		w.client.wantRefusal(p, netip.AddrPortFrom(refused, port))
		for _, at := range []netip.Addr{local, none, refused} {
			pod.wantAnswers(p, netip.AddrPortFrom(at, port), "pod1a pod2a pod3a", pod.ip[v6])
			w.nodes[0].wantAnswers(p, netip.AddrPortFrom(at, port), "pod1a pod2a pod3a", w.nodes[0].ip[v6], podNet(v6, 1, 1).Addr())
			if servers, _ := pod.answers(p, netip.AddrPortFrom(at, port+1), 1); len(servers) != 1 {
				t.Errorf("%s: %q answered a client that is to go back to the same", at, servers)
			}
		}
	})
}

func TestOnlySourcesMayConnect(t *testing.T) {
	w := newWorld(t)
	w.servePods()
	a := w.nodes[0].pods[0]
	allow := []netip.Prefix{
		wire(false, clientHost).Masked(), netip.MustParsePrefix("192.168.0.96/28"), netip.MustParsePrefix("192.168.0.64/26"), // one in the other
		netip.PrefixFrom(wire(true, clientHost).Addr(), 128),
	}
	deny := []netip.Prefix{netip.MustParsePrefix("192.168.0.0/26"), netip.MustParsePrefix("fd00:ffff::/32"), netip.MustParsePrefix("ffff::/16")}
	var rules []proxy.Rule
	kinds(func(p corev1.Protocol, v6 bool) {
		r := proxy.Rule{
			Frontend: proxy.Frontend{Address: external(v6, 1), Protocol: p, Port: port},
			Backends: backends(v6, a), Masquerade: proxy.MasqueradeEverybody, Sources: allow,
		}
		denied := r
		denied.Address, denied.Sources = external(v6, 2), deny
		rules = append(rules, r, denied)
	})
	w.start(rules...)
	kinds(func(p corev1.Protocol, v6 bool) {
		w.client.wantAnswers(p, netip.AddrPortFrom(external(v6, 1), port), "pod1a")
		w.client.wantSilence(p, netip.AddrPortFrom(external(v6, 2), port))
		w.nodes[0].pods[1].wantSilence(p, netip.AddrPortFrom(external(v6, 1), port))
	})
	for i := range rules {
		now := rules[i]
		now.Sources = allow
		if slices.Equal(rules[i].Sources, allow) {
			now.Sources = deny
		}
		w.update(proxy.Change{Was: rules[i], Is: now})
	}
	kinds(func(p corev1.Protocol, v6 bool) {
		w.client.wantSilence(p, netip.AddrPortFrom(external(v6, 1), port))
		w.client.wantAnswers(p, netip.AddrPortFrom(external(v6, 2), port), "pod1a")
	})
}

func TestCloseLeavesOnlyForeignTables(t *testing.T) {
	w := newWorld(t)
	n := w.nodes[0]
	n.do(func() {
		c, err := nftables.New()
		w.must(err)
		foreign := c.AddTable(&nftables.Table{Name: "foreign", Family: nftables.TableFamilyINet})
		c.AddChain(&nftables.Chain{Name: "frontend4-1", Table: foreign})
		w.must(c.Flush())
	})
	look := func() (seen string) {
		n.do(func() {
			c, err := nftables.New()
			w.must(err)
			tables, err := c.ListTables()
			w.must(err)
			chains, err := c.ListChains()
			w.must(err)
			for _, x := range tables {
				seen += "table " + x.Name + "\n"
			}
			for _, x := range chains {
				seen += "chain " + x.Table.Name + " " + x.Name + "\n"
			}
			for _, f := range []string{"net/netfilter/nf_conntrack_acct", "net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet"} {
				b, err := os.ReadFile("/proc/sys/" + f)
				w.must(err)
				seen += f + " " + string(b)
			}
		})
		return seen
	}
	for _, acct := range []string{"0", "1"} {
		n.do(func() { w.sysctl("net/netfilter/nf_conntrack_acct", acct) })
		before := look()
		r := proxy.Rule{Frontend: proxy.Frontend{Address: clusterIP(false, 1), Protocol: corev1.ProtocolTCP, Port: port}, Backends: backends(false, n.pods[0])}
		w.start(r)
		if look() == before {
			t.Error("nothing was made")
		}
		w.start(r) // another process finds it so
		w.stop()
		if after := look(); after != before {
			t.Errorf("before:\n%s\nafterwards:\n%s", before, after)
		}
		w.start(r)
		n.do(func() {
			w.must(nft.Remove(w.options.Table))
			w.must(nft.Remove(w.options.Table)) // nothing is there
		})
		if after := look(); after != before {
			t.Errorf("before:\n%s\nafter Remove:\n%s", before, after)
		}
	}
}

// TestReplaceRemovesNamesOfEarlierVersions starts over a table with a chain and a map that have names from an earlier
// version.
func TestReplaceRemovesNamesOfEarlierVersions(t *testing.T) {
	w := newWorld(t)
	n := w.nodes[0]
	names := func(of string) (all []string) {
		n.do(func() {
			c, err := nftables.New()
			w.must(err)
			chains, err := c.ListChains()
			w.must(err)
			sets, err := c.GetSets(&nftables.Table{Name: w.options.Table, Family: nftables.TableFamilyINet})
			w.must(err)
			for _, x := range chains {
				all = append(all, x.Name)
			}
			for _, x := range sets {
				all = append(all, x.Name)
			}
		})
		return slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, of) })
	}
	n.do(func() {
		c, err := nftables.New()
		w.must(err)
		ours := c.AddTable(&nftables.Table{Name: w.options.Table, Family: nftables.TableFamilyINet})
		c.AddChain(&nftables.Chain{Name: "door4-1-foreign", Table: ours})
		key := &nftables.Set{Name: "doors4", Table: ours, IsMap: true, KeyType: nftables.TypeInetService, DataType: nftables.TypeVerdict}
		w.must(c.AddSet(key, []nftables.SetElement{{
			Key: []byte{0, 80}, VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: "door4-1-foreign"},
		}}))
		w.must(c.Flush())
	})
	if got := names("door"); len(got) != 2 {
		t.Fatalf("made %q", got)
	}
	w.start(proxy.Rule{Frontend: proxy.Frontend{Address: clusterIP(false, 1), Protocol: corev1.ProtocolTCP, Port: port}, Backends: backends(false, n.pods[0])})
	if got := names("door"); len(got) != 0 {
		t.Errorf("%q are left", got)
	}
	if got := names("frontend"); len(got) < 3 {
		t.Errorf("%q, want the maps of both families and a chain", got)
	}
}

func TestLastTableRestoresAccounting(t *testing.T) {
	w := newWorld(t)
	const counting = "/proc/sys/net/netfilter/nf_conntrack_acct"
	for _, before := range []string{"0", "1"} {
		w.nodes[0].do(func() {
			w.sysctl("net/netfilter/nf_conntrack_acct", before)
			check := func(when, want string) {
				t.Helper()
				if b, err := os.ReadFile(counting); err != nil || strings.TrimSpace(string(b)) != want {
					t.Errorf("%s before: %s: it is %s (%v), want %s", before, when, b, err, want)
				}
			}
			var all []*nft.Kernel
			for _, table := range []string{"one", "two", "three"} {
				k, err := nft.New(nft.Options{Table: table})
				w.must(err)
				w.must(k.Replace(t.Context(), nil))
				all = append(all, k)
			}
			w.must(all[1].Replace(t.Context(), nil)) // one starts over
			w.must(all[0].Close())
			check("the first one went", "1")
			w.must(nft.Remove("three")) // one was killed
			check("another one went", "1")
			var rest nftables.Conn
			rest.FlushRuleset() // another program removes the table, and with it accountingWasOff
			w.must(rest.Flush())
			w.must(all[1].Replace(t.Context(), nil))
			w.must(all[1].Close())
			check("the last one went", before)
		})
	}
}

func TestRelayedRulesLeadToASocketOfTheNode(t *testing.T) {
	w := newWorld(t)
	n := w.nodes[0]
	var rules []proxy.Rule
	kinds(func(p corev1.Protocol, v6 bool) {
		at := netip.AddrPortFrom(podNet(v6, 1, 1).Addr(), 40000)
		n.serve(p, at.Port(), at.Addr())
		for _, a := range []netip.Addr{clusterIP(v6, 1), anyAddress(v6)} {
			rules = append(rules, proxy.Rule{
				Frontend: proxy.Frontend{Address: a, Protocol: p, Port: nodePort}, Backends: []netip.AddrPort{at}, Relayed: true,
			})
		}
	})
	w.start(rules...)
	kinds(func(p corev1.Protocol, v6 bool) {
		at, node := netip.AddrPortFrom(clusterIP(v6, 1), nodePort), netip.AddrPortFrom(n.ip[v6], nodePort)
		n.pods[0].wantAnswers(p, at, "node1", n.pods[0].ip[v6])
		n.wantAnswers(p, at, "node1")
		w.client.wantAnswers(p, at, "node1", w.client.ip[v6])
		w.client.wantAnswers(p, node, "node1", w.client.ip[v6])
	})
}

func TestWithoutRootTheErrorSaysSo(t *testing.T) {
	w := newWorld(t)
	n := w.nodes[0]
	k := w.kernel(0)
	n.do(func() {
		// This thread alone; it ends with the function.
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETUID, 65534, 0, 0); errno != 0 {
			t.Fatal(errno)
		}
		if err := k.Replace(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "this needs root (CAP_NET_ADMIN)") {
			t.Errorf("%v", err)
		}
	})
}

func TestAForeignProxyIsFound(t *testing.T) {
	w := newWorld(t)
	n := w.nodes[0]
	look := func() []string {
		var found []string
		n.do(func() {
			var err error
			found, err = nft.Foreign()
			w.must(err)
		})
		return found
	}
	w.start(proxy.Rule{Frontend: proxy.Frontend{Address: clusterIP(false, 1), Protocol: corev1.ProtocolTCP, Port: port}})
	if found := look(); len(found) != 0 {
		t.Errorf("found %q where there is none", found)
	}
	n.do(func() {
		c, err := nftables.New()
		w.must(err)
		c.AddTable(&nftables.Table{Name: "kube-proxy", Family: nftables.TableFamilyIPv6})
		nat := c.AddTable(&nftables.Table{Name: "nat", Family: nftables.TableFamilyIPv4})
		c.AddChain(&nftables.Chain{Name: "KUBE-SERVICES", Table: nat})
		w.must(c.Flush())
		w.must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "kube-ipvs0"}}))
	})
	want := []string{
		"kube-proxy in nftables mode: table ip6 kube-proxy",
		"kube-proxy in iptables mode: chain KUBE-SERVICES of table ip nat (iptables-nft)",
		"kube-proxy in ipvs mode: interface kube-ipvs0",
	}
	if found := look(); !slices.Equal(found, want) {
		t.Errorf("found %q, want %q", found, want)
	}
}

// TestSCTPIsSentToABackend speaks no more of SCTP than its first packet: kernels that
// forward it need not have it.
func TestSCTPIsSentToABackend(t *testing.T) {
	w := newWorld(t)
	pod := w.nodes[1].pods[0]
	r := proxy.Rule{
		Frontend: proxy.Frontend{Address: clusterIP(false, 1), Protocol: corev1.ProtocolSCTP, Port: port},
		Backends: backends(false, pod), Masquerade: proxy.MasqueradeForeign,
	}
	w.start(r)
	from := w.nodes[0].pods[1]
	var server, client *net.IPConn
	raw := func(h *host) (c *net.IPConn) {
		h.do(func() {
			var err error
			c, err = net.ListenIP("ip4:132", &net.IPAddr{IP: h.ip[false].AsSlice()})
			w.must(err)
		})
		t.Cleanup(func() { c.Close() })
		return c
	}
	server, client = raw(pod), raw(from)
	const source = 5000
	// The common header, and a chunk INIT (RFC 9260, 3.3.2) with one stream each way.
	p := []byte{source >> 8, source & 0xff, 0, port, 0, 0, 0, 0, 0, 0, 0, 0}
	p = append(p, 1, 0, 0, 20, 1, 2, 3, 4, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1)
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
	_, err := client.WriteTo(p, &net.IPAddr{IP: r.Address.AsSlice()})
	w.must(err)
	_ = server.SetReadDeadline(time.Now().Add(20 * patience))
	buf := make([]byte, 1500)
	k, _, err := server.ReadFromIP(buf)
	w.must(err)
	if got := buf[:k]; k < 4 || binary.BigEndian.Uint16(got) != source || binary.BigEndian.Uint16(got[2:]) != target {
		t.Errorf("the server got % x, want a packet from port %d to %d", buf[:k], source, target)
	}
}

func TestMarkedPacketsOfTheNodeAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.servePods()
	w.options.Mark = 0x77
	n := w.nodes[0]
	r := proxy.Rule{
		Frontend: proxy.Frontend{Address: anyAddress(false), Protocol: corev1.ProtocolTCP, Port: nodePort}, Masquerade: proxy.MasqueradeEverybody,
		Backends: backends(false, n.pods[0]),
	}
	w.start(r)
	at := netip.AddrPortFrom(n.ip[false], nodePort)
	n.wantAnswers(r.Protocol, at, "pod1a")
	n.do(func() {
		d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, 0x77) }), err)
		}}
		if c, err := d.DialContext(t.Context(), "tcp", at.String()); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%v, %v, want connection refused: nobody listens there", c, err)
		}
	})
}
