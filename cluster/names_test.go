package cluster

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/dns"
)

// TestWhereNamesAreAsked checks where the name server listens, what pods are told, and where
// its service leads. A second loopback address stands for the bridge.
func TestWhereNamesAreAsked(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("port 53 needs root")
	}
	bridge, services := netip.MustParseAddr("127.53.0.1"), netip.MustParsePrefix("10.96.0.0/16")
	at := func(t *testing.T, asked string, bridge netip.Addr) (*nameSockets, error) {
		t.Helper()
		c := &cluster{Options: Options{Settings: local.Settings{DNSListen: asked}, Log: slog.New(slog.DiscardHandler)}, bridge: bridge}
		n, err := c.listenDNS(t.Context())
		if n != nil {
			t.Cleanup(func() { _, _ = n.Close(), n.web.Close() })
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
		if err != nil || again.Addr().Port() == 53 || again.web.Addr().String() == n.web.Addr().String() {
			t.Errorf("%v, %v, want other ports", again, err)
		}
		if _, err := at(t, "127.53.0.1", bridge); err == nil {
			t.Error("an address that was asked for and is taken is no error")
		}
	})
	t.Run("none", func(t *testing.T) {
		for asked, bridge := range map[string]netip.Addr{"": {}, dns.None: bridge} {
			n, err := at(t, asked, bridge)
			if n != nil || err != nil || n.forPods(services) != nil || n.endpoint().Address.IsValid() {
				t.Errorf("asked for %q at %v: %v, %v", asked, bridge, n, err)
			}
		}
	})
	t.Run("where somebody wants it", func(t *testing.T) {
		n, err := at(t, "127.53.0.2:0", netip.Addr{})
		if err != nil || n.Addr().Addr() != netip.MustParseAddr("127.53.0.2") || n.endpoint().Address.IsValid() {
			t.Errorf("%v, %v, %v", n, err, n.endpoint())
		}
		if _, err := at(t, "0.0.0.0", bridge); err == nil {
			t.Error("listens on all addresses")
		}
	})
	// Where pods could come from somewhere else, another port is reached by the service.
	sockets, err := dns.Listen(t.Context(), &freebind, netip.MustParseAddrPort("192.0.2.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &nameSockets{sockets, web}
	defer n.Close()
	defer web.Close()
	if got := n.forPods(services); !slices.Equal(got, []string{"10.96.0.10"}) {
		t.Errorf("pods are told %v, want the service", got)
	}
	if got := n.endpoint(); got.Address.String() != "192.0.2.1" || got.Port != int32(n.Addr().Port()) || got.Metrics == 0 {
		t.Errorf("the service leads to %+v", got)
	}
}
