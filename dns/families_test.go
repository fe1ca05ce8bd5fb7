package dns_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	wire "github.com/miekg/dns"

	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/dns"
	"github.com/sampan-io/sampan/internal/run"
)

// A server of two addresses is asked at both, over both transports, says both of itself, and counts by
// the family in which it was asked.
func TestItIsAskedInBothFamilies(t *testing.T) {
	api := clienttest.New(t, namespace("shop"), service("web", "10.96.0.7"))
	var sockets []*dns.Sockets
	var web []net.Listener
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		s, err := dns.Listen(t.Context(), &net.ListenConfig{}, netip.MustParseAddrPort(at))
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		sockets, web = append(sockets, s), append(web, l)
	}
	nobody, _ := dns.Upstream(dns.None)
	joined := dns.Join(sockets...)
	s, err := dns.New(dns.Options{Client: api, Sockets: joined, Upstream: nobody, Web: web, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	group := run.NewGroup(t.Context(), 0)
	group.Go(func(context.Context) {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(group.Stop)
	t.Cleanup(cancel)
	<-s.Ready()
	if len(joined.Addrs()) != 2 || joined.Addr() != joined.Addrs()[0] {
		t.Fatalf("it is at %v", joined.Addrs())
	}
	for _, at := range joined.Addrs() {
		for _, network := range []string{"udp", "tcp"} {
			q := new(wire.Msg)
			q.SetQuestion("web.shop.svc.cluster.local.", wire.TypeA)
			r, _, err := (&wire.Client{Net: network, Timeout: patience}).Exchange(q, at.String())
			if err != nil || len(r.Answer) != 1 || !strings.HasSuffix(r.Answer[0].String(), "10.96.0.7") {
				t.Errorf("%s over %s: %v, %v", at, network, r, err)
			}
		}
	}
	for _, l := range web {
		res, err := http.Get("http://" + l.Addr().String() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		for _, family := range []string{"1", "2"} {
			for _, proto := range []string{"udp", "tcp"} {
				found := false
				for line := range strings.Lines(string(body)) {
					found = found || strings.HasPrefix(line, "coredns_dns_requests_total{") && strings.Contains(line, `family="`+family+`"`) &&
						strings.Contains(line, `proto="`+proto+`"`) && strings.Contains(line, `type="A"`) && strings.Contains(line, `zone="cluster.local."`) && strings.HasSuffix(line, " 1\n")
				}
				if !found {
					t.Errorf("at %s there is no question of family %s over %s:\n%s", l.Addr(), family, proto, body)
				}
			}
		}
	}
}
