package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/sampan-io/sampan/apiserver/bootstrap"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/dns"
	"github.com/sampan-io/sampan/dns/zone"
	"github.com/sampan-io/sampan/internal/run"
)

// Where clients of Kubernetes expect a name server and its metrics.
const (
	dnsPort        = 53
	dnsMetricsPort = 9153
)

// nameSockets are those of the cluster's name server. A nil one is none.
type nameSockets struct {
	*dns.Sockets
	web net.Listener
}

// domain returns the cluster domain.
func (c *cluster) domain() string {
	return strings.TrimSuffix(cmp.Or(c.Settings.ClusterDomain, zone.DefaultDomain), ".")
}

// listenDNS opens the sockets of the name server, if there is to be one. They are there
// before pods are, so that a question that comes while the cluster starts is answered.
func (c *cluster) listenDNS(ctx context.Context) (*nameSockets, error) {
	asked := c.Settings.DNSListen
	if asked == dns.None || asked == "" && !c.bridge.IsValid() {
		return nil, nil
	}
	at := netip.AddrPortFrom(c.bridge, dnsPort)
	if asked != "" {
		var err error
		if at, err = dns.ParseAddress(asked); err != nil {
			return nil, err
		}
	}
	sockets, err := dns.Listen(ctx, &freebind, at)
	if asked == "" && errors.Is(err, syscall.EADDRINUSE) {
		// A resolver of the host may listen on all its addresses. Pods are told the
		// address of the service instead, which leads to whatever port it is.
		c.Log.WarnContext(ctx, "another program has the port of cluster DNS: pods reach it through its service alone", "address", at)
		sockets, err = dns.Listen(ctx, &freebind, netip.AddrPortFrom(at.Addr(), 0))
	}
	if err != nil {
		return nil, fmt.Errorf("listening for cluster DNS: %w; choose another address with --cluster-dns-listen, or none", err)
	}
	web, err := freebind.Listen(ctx, "tcp", netip.AddrPortFrom(at.Addr(), dnsMetricsPort).String())
	if errors.Is(err, syscall.EADDRINUSE) {
		web, err = freebind.Listen(ctx, "tcp", netip.AddrPortFrom(at.Addr(), 0).String())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listening for the metrics of cluster DNS: %w", err), sockets.Close())
	}
	return &nameSockets{sockets, web}, nil
}

// endpoint returns where the service of the name server leads; to loopback it can't.
func (n *nameSockets) endpoint() bootstrap.DNS {
	if n == nil || n.Addr().Addr().IsLoopback() || !n.Addr().Addr().Is4() {
		return bootstrap.DNS{}
	}
	return bootstrap.DNS{
		Address: n.Addr().Addr(), Port: int32(n.Addr().Port()), Metrics: int32(n.web.Addr().(*net.TCPAddr).Port),
	}
}

// forPods returns the name servers of pods: a resolver configuration can't say a port, so
// it is the service if there is another one.
func (n *nameSockets) forPods(services netip.Prefix) []string {
	switch {
	case n == nil:
		return nil
	case n.Addr().Port() == dnsPort:
		return []string{n.Addr().Addr().String()}
	case n.endpoint().Address.IsValid() && bootstrap.DNSAddress(services).IsValid():
		return []string{bootstrap.DNSAddress(services).String()}
	}
	return nil
}

// nameServer returns the cluster's name server, if there is to be one.
func (c *cluster) nameServer(caches *cache.Shared) (run.Stage, error) {
	if c.names == nil {
		return nil, nil
	}
	upstream, err := dns.Upstream(c.Settings.DNSUpstream)
	if err != nil {
		return nil, err
	}
	s, err := dns.New(dns.Options{
		Caches:   caches,
		Sockets:  c.names.Sockets,
		Upstream: upstream,
		Domain:   c.domain(),
		Networks: []netip.Prefix{c.Settings.Pods, c.Settings.Services},
		Web:      c.names.web,
		Version:  c.Version,
		Log:      c.Log,
	})
	if err != nil {
		return nil, err
	}
	return run.Stage{{Name: "cluster DNS", Run: s.Run, Ready: s.Ready()}}, nil
}
