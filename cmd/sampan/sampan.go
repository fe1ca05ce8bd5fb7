package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/cli"
	"github.com/sampan-io/sampan/cli/clusters"
	"github.com/sampan-io/sampan/cli/scheduling"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/cluster"
	"github.com/sampan-io/sampan/dns"
	"github.com/sampan-io/sampan/dns/zone"
	"github.com/sampan-io/sampan/internal/memory"
	"github.com/sampan-io/sampan/internal/run"
	proxyalone "github.com/sampan-io/sampan/proxy/standalone"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/config"
	"github.com/sampan-io/sampan/scheduler/standalone"
)

// sampan runs the command line with the given arguments and returns its exit
// code. It is here that the command line learns what a cluster is.
func sampan(ctx context.Context, release func(), in io.Reader, out, errOut io.Writer, args ...string) int {
	verbs := clusters.Options{
		Version: version,
		Serve:   serve,
		Clean:   cluster.Clean,
		Verb: func(ctx context.Context, in io.Reader, args ...string) int {
			return sampan(ctx, release, in, out, errOut, args...)
		},
	}
	return cli.Main(ctx, args, cli.Options{
		Version:      version,
		In:           in,
		Out:          out,
		Err:          errOut,
		Extra:        clusters.Commands(verbs),
		RunScheduler: runScheduler,
		RunDNS:       runDNS,
		RunProxy:     runProxy,
		Release:      release,
	})
}

func serve(ctx context.Context, s clusters.Service) error {
	return cluster.Run(ctx, cluster.Options{
		Profile:  s.Profile,
		Settings: s.Settings,
		Version:  version,
		Runtime:  runtimeProgram,
		Report:   s.Report,
		Log:      s.Log,
	})
}

// runScheduler runs only the scheduler, for a cluster that may not be Sampan's.
func runScheduler(ctx context.Context, s scheduling.Schedule) error {
	return standalone.Run(ctx, standalone.Options{
		Connect:        s.Connect,
		Plugins:        config.Available{Default: builtin.Default()},
		ConfigFile:     s.ConfigFile,
		Name:           s.Name,
		LeaderElect:    s.LeaderElect,
		MetricsAddress: s.MetricsAddress,
		CertFile:       s.CertFile,
		KeyFile:        s.KeyFile,
		UserAgent:      "sampan-scheduler/" + version,
	})
}

// runDNS runs only the DNS server, for a cluster that may not be Sampan's.
func runDNS(ctx context.Context, cfg *rest.Config, o cli.DNSOptions) error {
	at, err := dns.ParseAddress(o.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	upstream, err := dns.Upstream(o.Upstream)
	if err != nil {
		return fmt.Errorf("--cluster-dns-upstream: %w", err)
	}
	if err := zone.CheckDomain(o.Domain); err != nil {
		return fmt.Errorf("--cluster-domain: %w", err)
	}
	var networks []netip.Prefix
	for _, text := range o.Networks {
		n, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("--cluster-cidr: must be a network such as 10.96.0.0/16: %w", err)
		}
		networks = append(networks, n)
	}
	api, err := client.NewREST(cfg, client.RESTOptions{UserAgent: "sampan-dns/" + version})
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	sockets, err := dns.Listen(ctx, &lc, at)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	var web []net.Listener
	if o.Metrics != "" {
		l, err := lc.Listen(ctx, "tcp", o.Metrics)
		if err != nil {
			return errors.Join(fmt.Errorf("--metrics-listen: %w", err), sockets.Close())
		}
		web = append(web, l)
	}
	s, err := dns.New(dns.Options{
		Client: api, Sockets: sockets, Upstream: upstream, Domain: o.Domain, Networks: networks, Web: web, Version: version, Log: o.Log,
	})
	if err != nil {
		return errors.Join(err, sockets.Close())
	}
	return run.Stages(
		ctx,
		run.Stage{{Name: "memory", Run: func(ctx context.Context) error { return memory.Run(ctx, memory.Options{Log: o.Log}) }}},
		run.Stage{{Name: "DNS", Run: s.Run, Ready: s.Ready()}},
	)
}

// runProxy runs only the service proxy, for a cluster that may not be Sampan's.
func runProxy(ctx context.Context, connect func() (*rest.Config, error), o cli.ProxyOptions) error {
	alone := proxyalone.Options{
		Connect:           connect,
		Node:              o.Node,
		BindAddress:       o.BindAddress,
		Mode:              o.Mode,
		NodePortAddresses: o.NodePortAddresses,
		ClusterCIDR:       o.ClusterCIDR,
		ServiceCIDR:       o.ServiceCIDR,
		Keep:              o.Keep,
		Announce:          o.Announce,
		HealthzAddress:    o.HealthzAddress,
		MetricsAddress:    o.MetricsAddress,
		UserAgent:         "sampan-proxy/" + version,
		Log:               o.Log,
	}
	if o.Cleanup {
		return proxyalone.Cleanup(alone)
	}
	return proxyalone.Run(ctx, alone)
}
