package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/sampan-io/sampan/apiserver/bootstrap"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/dns"
	"github.com/sampan-io/sampan/dns/zone"
	"github.com/sampan-io/sampan/internal/reserved"
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
	web []net.Listener // one for each address
}

// namePorts returns the ports of the name server. They include the usual ones even if other programs have these now: the
// addresses in the pods' resolv.conf lead there.
func (c *cluster) namePorts() reserved.Ports {
	if c.names == nil {
		return nil
	}
	own := slices.Concat(reserved.TCP(dnsPort, dnsMetricsPort), reserved.UDP(dnsPort))
	for i, at := range c.names.Addrs() {
		port := int32(at.Port())
		own = slices.Concat(own, reserved.UDP(port), reserved.TCP(port, int32(c.names.web[i].Addr().(*net.TCPAddr).Port)))
	}
	return own
}

// domain returns the cluster domain.
func (c *cluster) domain() string {
	return strings.TrimSuffix(cmp.Or(c.Settings.ClusterDomain, zone.DefaultDomain), ".")
}

// listenDNS opens the sockets of the name server, if there is to be one. They are there
// before pods are, so that a question that comes while the cluster starts is answered.
func (c *cluster) listenDNS(ctx context.Context) (*nameSockets, error) {
	asked := c.Settings.DNSListen
	if asked == dns.None || asked == "" && len(c.bridge) == 0 {
		return nil, nil
	}
	var places []netip.AddrPort
	for _, a := range c.bridge {
		places = append(places, netip.AddrPortFrom(a, dnsPort))
	}
	if asked != "" {
		at, err := dns.ParseAddress(asked)
		if err != nil {
			return nil, err
		}
		places = []netip.AddrPort{at}
	}
	n := &nameSockets{Sockets: dns.Join()}
	for _, at := range places {
		sockets, web, err := c.listenDNSAt(ctx, at, asked == "")
		if err != nil {
			return nil, errors.Join(err, n.close())
		}
		n.Sockets, n.web = dns.Join(n.Sockets, sockets), append(n.web, web)
	}
	return n, nil
}

// listenDNSAt opens the sockets of one address. With anyPort it falls back to another port.
func (c *cluster) listenDNSAt(ctx context.Context, at netip.AddrPort, anyPort bool) (*dns.Sockets, net.Listener, error) {
	sockets, err := dns.Listen(ctx, &freebind, at)
	if anyPort && errors.Is(err, syscall.EADDRINUSE) {
		// A resolver of the host may listen on all its addresses. Pods use the address of
		// the Service instead, which leads to any port.
		c.Log.WarnContext(ctx, "another program uses the port of cluster DNS: pods only reach cluster DNS through its Service", "address", at)
		sockets, err = dns.Listen(ctx, &freebind, netip.AddrPortFrom(at.Addr(), 0))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listening for cluster DNS: %w; pass another address with --cluster-dns-listen, or none", err)
	}
	web, err := freebind.Listen(ctx, "tcp", netip.AddrPortFrom(at.Addr(), dnsMetricsPort).String())
	if errors.Is(err, syscall.EADDRINUSE) {
		web, err = freebind.Listen(ctx, "tcp", netip.AddrPortFrom(at.Addr(), 0).String())
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("listening for the metrics of cluster DNS: %w", err), sockets.Close())
	}
	return sockets, web, nil
}

func (n *nameSockets) close() error {
	errs := []error{n.Close()}
	for _, l := range n.web {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// endpoints returns where the service of the name server leads, in each IP family that
// services have; to loopback it can't.
func (n *nameSockets) endpoints(services local.Pair) []bootstrap.DNS {
	if n == nil {
		return nil
	}
	var all []bootstrap.DNS
	for i, at := range n.Addrs() {
		served := slices.ContainsFunc(services.All(), func(s netip.Prefix) bool {
			return s.Addr().Is4() == at.Addr().Is4() && bootstrap.DNSAddress(s).IsValid()
		})
		if served && !at.Addr().IsLoopback() {
			all = append(all, bootstrap.DNS{Address: at.Addr(), Port: int32(at.Port()), Metrics: int32(n.web[i].Addr().(*net.TCPAddr).Port)})
		}
	}
	return all
}

// forPods returns the name server of pods, one of the primary family: a resolver configuration
// can't say a port, so it is the service if there is another one.
func (n *nameSockets) forPods(services local.Pair) []string {
	switch {
	case n == nil:
		return nil
	case n.Addr().Port() == dnsPort:
		return []string{n.Addr().Addr().String()}
	}
	for _, s := range services.All() {
		if slices.ContainsFunc(n.endpoints(services), func(d bootstrap.DNS) bool { return d.Address.Is4() == s.Addr().Is4() }) {
			return []string{bootstrap.DNSAddress(s).String()}
		}
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
		Networks: slices.Concat(c.Settings.Pods.All(), c.Settings.Services.All()),
		Web:      c.names.web,
		Version:  c.Version,
		Log:      c.Log,
	})
	if err != nil {
		return nil, err
	}
	return run.Stage{{Name: "cluster DNS", Run: s.Run, Ready: s.Ready()}}, nil
}
