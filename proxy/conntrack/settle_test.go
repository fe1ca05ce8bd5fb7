package conntrack

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/proxy"
)

func at(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

func TestMayQueue(t *testing.T) {
	const synSent, established, timeWait, closed, synSent2 = 1, 3, 7, 8, 9
	four, six := at("10.96.0.1:80"), at("[fd00::1]:80")
	tests := []struct {
		name    string
		flow    flow
		counted bool
		want    bool
	}{
		{"the client asks to connect", flow{to: four, state: synSent, sent: traffic{1, 60}}, true, true},
		{"the host has accepted it, which says nothing of the server", flow{to: four, state: established, sent: traffic{2, 112}, answered: traffic{1, 60}}, true, true},
		{"the same by IPv6", flow{to: six, state: established, sent: traffic{2, 152}, answered: traffic{1, 80}}, true, true},
		{"the request came in", flow{to: four, state: established, sent: traffic{3, 300}, answered: traffic{2, 112}}, true, true},
		{"the server has answered", flow{to: four, state: established, sent: traffic{3, 300}, answered: traffic{3, 500}}, true, false},
		{"the same by IPv6", flow{to: six, state: established, sent: traffic{3, 300}, answered: traffic{3, 500}}, true, false},
		{"an answer of one byte", flow{to: four, state: established, sent: traffic{2, 112}, answered: traffic{2, 60 + 61}}, true, false},
		{"it is over", flow{to: four, state: timeWait, sent: traffic{3, 300}, answered: traffic{2, 112}}, true, false},
		{"it was reset", flow{to: four, state: closed, sent: traffic{1, 60}, answered: traffic{1, 40}}, true, false},
		{"both ends ask to connect", flow{to: four, state: synSent2, sent: traffic{1, 60}}, true, true},
		{"it is from before packets were counted", flow{to: four, state: established}, true, false},
		{"packets are not counted", flow{to: four, state: established}, false, true},
		{"packets are not counted, and it is over", flow{to: four, state: timeWait}, false, false},
		{"packets are counted no more", flow{to: four, state: established, sent: traffic{3, 300}, answered: traffic{3, 500}}, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := mayQueue(&tt.flow, tt.counted); got != tt.want {
				t.Errorf("mayQueue(%v, %t) = %t, want %t", &tt.flow, tt.counted, got, tt.want)
			}
		})
	}
}

func frontend(text string) proxy.Frontend {
	a := at(text)
	return proxy.Frontend{Address: a.Addr(), Protocol: corev1.ProtocolTCP, Port: a.Port()}
}

func TestRemovalHas(t *testing.T) {
	tests := []struct {
		name, frontend, backend, to, server string
		want                                bool
	}{
		{"its own", "10.96.0.1:80", "10.1.0.5:8080", "10.96.0.1:80", "10.1.0.5:8080", true},
		{"by IPv6", "[fd00::1]:80", "[fd01::5]:8080", "[fd00::1]:80", "[fd01::5]:8080", true},
		{"another server", "10.96.0.1:80", "10.1.0.5:8080", "10.96.0.1:80", "10.1.0.6:8080", false},
		{"another port of the server", "10.96.0.1:80", "10.1.0.5:8080", "10.96.0.1:80", "10.1.0.5:8081", false},
		{"another frontend", "10.96.0.1:80", "10.1.0.5:8080", "10.96.0.2:80", "10.1.0.5:8080", false},
		{"another port of the frontend", "10.96.0.1:80", "10.1.0.5:8080", "10.96.0.1:81", "10.1.0.5:8080", false},
		{"past all frontends", "10.96.0.1:80", "10.1.0.5:8080", "10.1.0.5:8080", "10.1.0.5:8080", false},
		{"a node port, at any address", "0.0.0.0:30080", "10.1.0.5:8080", "192.0.2.7:30080", "10.1.0.5:8080", true},
		{"another node port", "0.0.0.0:30080", "10.1.0.5:8080", "192.0.2.7:30081", "10.1.0.5:8080", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := removal{frontend: frontend(tt.frontend), backend: at(tt.backend)}
			if got := p.has(at(tt.to), at(tt.server)); got != tt.want {
				t.Errorf("%t, want %t", got, tt.want)
			}
		})
	}
}

func TestSelections(t *testing.T) {
	tcp := func(v6 bool, to, server netip.AddrPort) selection {
		return selection{v6, unix.IPPROTO_TCP, to, server}
	}
	port := func(n uint16) netip.AddrPort { return netip.AddrPortFrom(netip.Addr{}, n) }
	tests := []struct {
		name string
		gone [][2]string // frontends and servers
		want []selection
	}{
		{"nobody", nil, nil},
		{"one", [][2]string{{"10.96.0.1:80", "10.1.0.5:8080"}}, []selection{tcp(false, at("10.96.0.1:80"), at("10.1.0.5:8080"))}},
		{"one at two frontends", [][2]string{{"10.96.0.1:80", "10.1.0.5:8080"}, {"0.0.0.0:30080", "10.1.0.5:8080"}}, []selection{tcp(false, netip.AddrPort{}, at("10.1.0.5:8080"))}},
		{"a node port", [][2]string{{"0.0.0.0:30080", "10.1.0.5:8080"}}, []selection{tcp(false, port(30080), at("10.1.0.5:8080"))}},
		{"two of one port", [][2]string{{"10.96.0.1:80", "10.1.0.5:8080"}, {"10.96.0.1:80", "10.1.0.6:8080"}}, []selection{tcp(false, at("10.96.0.1:80"), port(8080))}},
		{"two of IPv6", [][2]string{{"[fd00::1]:80", "[fd01::5]:8080"}, {"[fd00::2]:80", "[fd01::6]:8081"}}, []selection{tcp(true, port(80), netip.AddrPort{})}},
		{
			"of both families",
			[][2]string{{"10.96.0.1:80", "10.1.0.5:8080"}, {"[fd00::1]:80", "[fd01::5]:8080"}},
			[]selection{tcp(false, at("10.96.0.1:80"), at("10.1.0.5:8080")), tcp(true, at("[fd00::1]:80"), at("[fd01::5]:8080"))},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var all []*drain
			for _, g := range tt.gone {
				all = append(all, &drain{removal: removal{frontend: frontend(g[0]), backend: at(g[1])}})
			}
			got := selections(all)
			if !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestStaleFlows(t *testing.T) {
	f := forgetter{local: map[netip.Addr]bool{netip.MustParseAddr("192.0.2.7"): true}}
	udp := func(text string) proxy.Frontend {
		d := frontend(text)
		d.Protocol = corev1.ProtocolUDP
		return d
	}
	for _, d := range []string{"10.96.0.10:53", "0.0.0.0:30053"} {
		was := proxy.Rule{Frontend: udp(d), Backends: []netip.AddrPort{at("10.1.0.5:53"), at("10.1.0.6:53")}}
		is := proxy.Rule{Frontend: udp(d), Backends: []netip.AddrPort{at("10.1.0.5:53")}}
		f.note(&was, &is)
	}
	stays := proxy.Rule{Frontend: udp("10.96.0.11:53"), Backends: []netip.AddrPort{at("10.1.0.5:53")}}
	more := stays
	more.Backends = []netip.AddrPort{at("10.1.0.5:53"), at("10.1.0.6:53")}
	f.note(&stays, &more)
	tests := []struct {
		name, to, server string
		protocol         uint8
		want             bool
	}{
		{"to one that is gone", "10.96.0.10:53", "10.1.0.6:53", unix.IPPROTO_UDP, true},
		{"to one that stays", "10.96.0.10:53", "10.1.0.5:53", unix.IPPROTO_UDP, false},
		{"to the frontend itself, from before it was one", "10.96.0.10:53", "10.96.0.10:53", unix.IPPROTO_UDP, true},
		{"of TCP", "10.96.0.10:53", "10.1.0.6:53", unix.IPPROTO_TCP, false},
		{"by the node port", "192.0.2.7:30053", "10.1.0.6:53", unix.IPPROTO_UDP, true},
		{"to that port of somebody else", "192.0.2.8:30053", "192.0.2.8:30053", unix.IPPROTO_UDP, false},
		{"by a frontend from which nobody is gone", "10.96.0.11:53", "10.1.0.6:53", unix.IPPROTO_UDP, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := f.stale(&flow{protocol: tt.protocol, to: at(tt.to), server: at(tt.server)}); got != tt.want {
				t.Errorf("%t, want %t", got, tt.want)
			}
		})
	}
	want := []selection{{protocol: unix.IPPROTO_UDP}}
	if got := f.selections(); !slices.Equal(got, want) {
		t.Errorf("read is %v, want %v", got, want)
	}
}

// TestRemovedServersAreForgotten has servers that come back, or left long ago.
func TestRemovedServersAreForgotten(t *testing.T) {
	var l Drains
	now := time.Now()
	r := proxy.Rule{Frontend: frontend("10.96.0.1:80"), Backends: []netip.AddrPort{at("10.1.0.5:8080"), at("10.1.0.6:8080")}}
	none := proxy.Rule{Frontend: r.Frontend}
	l.Add([]proxy.Change{{Was: r, Is: none}}, now)
	if n := len(l.list(now)); n != 2 {
		t.Errorf("%d have left, want 2", n)
	}
	one := proxy.Rule{Frontend: r.Frontend, Backends: r.Backends[:1]}
	l.Add([]proxy.Change{{Was: none, Is: one}}, now)
	if all := l.list(now); len(all) != 1 || all[0].backend != r.Backends[1] {
		t.Errorf("%v have left, want the other one", all)
	}
	if all := l.list(now.Add(young)); len(all) != 0 {
		t.Errorf("after a second %v are waited for", all)
	}
}
