package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/internal/reserved"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy/health"
)

// proxyPages returns the parts that serve the health of the service proxy, which load balancers of clouds ask, and its metrics.
// A port that another program has is no reason not to run: the nodes of several clusters on one host want the same ports.
func (c *cluster) proxyPages(s health.Subject, userspace bool, metrics ...prometheus.Collector) run.Stage {
	var parts run.Stage
	for _, page := range []struct {
		name, verb, flag, at string
		handler              http.Handler
	}{
		{"health of the service proxy", "is", "healthz-bind-address", c.proxyAddress(c.Settings.ProxyHealth, local.DefaultProxyHealth), health.Handler(s)},
		{"metrics of the service proxy", "are", "metrics-bind-address", c.proxyAddress(c.Settings.ProxyMetrics, local.DefaultProxyMetrics), health.Pages(s, userspace, metrics...)},
	} {
		if page.at == "" {
			continue
		}
		tried := make(chan struct{})
		parts = append(parts, run.Task{Name: page.name, Ready: tried, Run: func(ctx context.Context) error {
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", page.at)
			if err != nil {
				c.unserved(ctx, page.name+" "+page.verb+" not served", page.flag, err)
			}
			close(tried)
			if err != nil {
				<-ctx.Done()
				return nil
			}
			c.Log.InfoContext(ctx, page.name+" listening", "address", l.Addr())
			if err := health.Serve(ctx, l, page.handler); err != nil {
				c.Log.ErrorContext(ctx, "the "+page.name+" "+page.verb+" not served any more", "err", err)
				<-ctx.Done()
			}
			return nil
		}})
	}
	return parts
}

// unserved records that a page is not served at the address of a flag, and why.
func (c *cluster) unserved(ctx context.Context, what, flag string, err error) {
	hint := "pass another address with --" + flag + ", or none"
	if errors.Is(err, syscall.EADDRINUSE) {
		hint = "another cluster on this host, or kube-proxy, may have the port; " + hint
	}
	c.Log.WarnContext(ctx, "the "+what+": "+hint, "err", err)
	c.warnings.add(fmt.Sprintf("the %s: %v: %s", what, err, hint))
}

// proxyAddress returns the address of a flag, or "" for none. A default at all addresses is one of both IP families.
func (c *cluster) proxyAddress(set, byDefault string) string {
	at := byDefault
	switch set {
	case "":
		if a := netip.MustParseAddrPort(byDefault); a.Addr().IsUnspecified() {
			_, port, _ := net.SplitHostPort(byDefault)
			return ":" + port
		}
	case local.NoAddress:
		return ""
	default:
		at = set
	}
	return at
}

// proxyPorts returns the ports of the pages, if there is a service proxy.
func (c *cluster) proxyPorts() (own reserved.Ports) {
	if !c.real() {
		return nil
	}
	for _, at := range []string{c.proxyAddress(c.Settings.ProxyHealth, local.DefaultProxyHealth), c.proxyAddress(c.Settings.ProxyMetrics, local.DefaultProxyMetrics)} {
		if _, port, err := net.SplitHostPort(at); err == nil {
			if n, err := strconv.ParseUint(port, 10, 16); err == nil {
				own = append(own, reserved.TCP(int32(n))...)
			}
		}
	}
	return own
}
