package cluster

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/dns"
)

// TestWhereNamesAreAsked checks the listen address of the name server, the resolver of pods
// and the endpoint of its Service. A second loopback address represents the bridge.
func TestWhereNamesAreAsked(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("port 53 needs root")
	}
	bridge, services := netip.MustParseAddr("127.53.0.1"), pair("10.96.0.0/16")
	at := func(t *testing.T, asked string, bridge ...netip.Addr) (*nameSockets, error) {
		t.Helper()
		c := &cluster{Options: Options{Settings: local.Settings{DNSListen: asked}, Log: slog.New(slog.DiscardHandler)}, bridge: bridge}
		n, err := c.listenDNS(t.Context())
		if n != nil {
			t.Cleanup(func() { _ = n.close() })
		}
		return n, err
	}
	t.Run("the bridge", func(t *testing.T) {
		n, err := at(t, "", bridge)
		if err != nil || n.Addr() != netip.AddrPortFrom(bridge, 53) || !slices.Equal(n.forPods(services), []string{"127.53.0.1"}) {
			t.Fatalf("%v, %v, pods are told %v", n, err, n.forPods(services))
		}
		// Another cluster of this name would find both ports taken.
		again, err := at(t, "", bridge)
		if err != nil || again.Addr().Port() == 53 || again.web[0].Addr().String() == n.web[0].Addr().String() {
			t.Errorf("%v, %v, want other ports", again, err)
		}
		if _, err := at(t, "127.53.0.1", bridge); err == nil {
			t.Error("an address that was asked for and is taken is no error")
		}
	})
	t.Run("none", func(t *testing.T) {
		for asked, bridge := range map[string][]netip.Addr{"": nil, dns.None: {bridge}} {
			n, err := at(t, asked, bridge...)
			if n != nil || err != nil || n.forPods(services) != nil || n.endpoints(services) != nil {
				t.Errorf("asked for %q at %v: %v, %v", asked, bridge, n, err)
			}
		}
	})
	t.Run("where somebody wants it", func(t *testing.T) {
		n, err := at(t, "127.53.0.2:0")
		if err != nil || n.Addr().Addr() != netip.MustParseAddr("127.53.0.2") || n.endpoints(services) != nil {
			t.Errorf("%v, %v, %v", n, err, n.endpoints(services))
		}
		if _, err := at(t, "0.0.0.0", bridge); err == nil {
			t.Error("listens on all addresses")
		}
	})
	// Where pods could come from somewhere else, another port is reached by the service, in the
	// primary family.
	for _, tt := range []struct {
		services  string
		at        []string
		want      string
		endpoints []string
	}{
		{"10.96.0.0/16", []string{"192.0.2.1:0"}, "10.96.0.10", []string{"192.0.2.1"}},
		{"fd96::/112", []string{"[2001:db8::1]:0"}, "fd96::a", []string{"2001:db8::1"}},
		{"10.96.0.0/16,fd96::/112", []string{"192.0.2.1:0", "[2001:db8::1]:0"}, "10.96.0.10", []string{"192.0.2.1", "2001:db8::1"}},
		{"fd96::/112,10.96.0.0/16", []string{"[2001:db8::1]:0", "192.0.2.1:0"}, "fd96::a", []string{"2001:db8::1", "192.0.2.1"}},
		{"10.96.0.0/16,fd96::/112", []string{"[2001:db8::1]:0"}, "fd96::a", []string{"2001:db8::1"}},
		{"10.96.0.0/16", []string{"[2001:db8::1]:0"}, "", nil},
	} {
		n := &nameSockets{Sockets: dns.Join()}
		for _, at := range tt.at {
			sockets, err := dns.Listen(t.Context(), &freebind, netip.MustParseAddrPort(at))
			if err != nil {
				t.Fatal(err)
			}
			web, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			n.Sockets, n.web = dns.Join(n.Sockets, sockets), append(n.web, web)
		}
		defer n.close()
		if got := strings.Join(n.forPods(pair(tt.services)), " "); got != tt.want {
			t.Errorf("%s at %v: pods are told %q, want %q", tt.services, tt.at, got, tt.want)
		}
		var got []string
		for i, e := range n.endpoints(pair(tt.services)) {
			got = append(got, e.Address.String())
			if e.Port != int32(n.Addrs()[i].Port()) || e.Metrics == 0 {
				t.Errorf("the service leads to %+v", e)
			}
		}
		if !slices.Equal(got, tt.endpoints) {
			t.Errorf("%s at %v: the service leads to %v, want %v", tt.services, tt.at, got, tt.endpoints)
		}
	}
}

func pair(text string) local.Pair {
	p, err := local.ParsePair(text)
	if err != nil {
		panic(err)
	}
	return p
}
