package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/dns"
	"github.com/sampan-io/sampan/dns/zone"
	"github.com/sampan-io/sampan/internal/memory"
	"github.com/sampan-io/sampan/internal/run"
)

// dnsFlags are the flags of the command dns.
type dnsFlags struct {
	listen   string // ADDRESS or ADDRESS:PORT
	domain   string // of the cluster
	upstream string // comma-separated name servers for other names; empty means the host's, "none" disables forwarding
	metrics  string // listen address of the metrics, ADDRESS:PORT; empty means not served
	networks []string
}

// dnsCommand returns the command dns, which runs the DNS server of a cluster that may not be Sampan's.
func dnsCommand(g *session.Globals) *cobra.Command {
	var d dnsFlags
	var l session.Log
	cmd := &cobra.Command{
		Use:   "dns --listen=ADDRESS",
		Short: "Run only the DNS server, for any cluster",
		Long: "Run only Sampan's DNS server, for the cluster of the kubeconfig, until it is interrupted. It answers queries for\n" +
			"Services and their endpoints according to the Kubernetes DNS specification, over UDP and TCP, and forwards all other\n" +
			"queries to the name servers of this host.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := g.Config()
			if err != nil {
				return err
			}
			log := l.To(cmd.ErrOrStderr())
			return d.serve(cmd.Context(), cfg, g.Version, log)
		},
	}
	f := cmd.Flags()
	f.StringVar(&d.listen, "listen", "", "address to serve DNS on, such as 192.0.2.1 or 127.0.0.1:5353 (required)")
	f.StringVar(&d.domain, "cluster-domain", "cluster.local", "DNS domain of the cluster")
	f.StringVar(&d.upstream, "cluster-dns-upstream", "", "comma-separated name servers for names outside the cluster, or none (default: those of this host)")
	f.StringVar(&d.metrics, "metrics-listen", "", "address to serve /metrics, /ready and /health on over HTTP, such as 127.0.0.1:9153 (default: not served)")
	f.StringSliceVar(&d.networks, "cluster-cidr", nil, "networks of pods and services, whose reverse lookups are not forwarded to other name servers")
	l.AddFlag(f)
	_ = cmd.MarkFlagRequired("listen") // it exists: it was made above
	return cmd
}

// serve answers DNS queries until ctx is cancelled.
func (d dnsFlags) serve(ctx context.Context, cfg *rest.Config, version string, log *slog.Logger) error {
	at, err := dns.ParseAddress(d.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	upstream, err := dns.Upstream(d.upstream)
	if err != nil {
		return fmt.Errorf("--cluster-dns-upstream: %w", err)
	}
	if err := zone.CheckDomain(d.domain); err != nil {
		return fmt.Errorf("--cluster-domain: %w", err)
	}
	var networks []netip.Prefix
	for _, text := range d.networks {
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
	if d.metrics != "" {
		l, err := lc.Listen(ctx, "tcp", d.metrics)
		if err != nil {
			return errors.Join(fmt.Errorf("--metrics-listen: %w", err), sockets.Close())
		}
		web = append(web, l)
	}
	s, err := dns.New(dns.Options{
		Client: api, Sockets: sockets, Upstream: upstream, Domain: d.domain, Networks: networks, Web: web, Version: version, Log: log,
	})
	if err != nil {
		return errors.Join(err, sockets.Close())
	}
	return run.Stages(
		ctx,
		run.Stage{{Name: "memory", Run: func(ctx context.Context) error { return memory.Run(ctx, memory.Options{Log: log}) }}},
		run.Stage{{Name: "DNS", Run: s.Run, Ready: s.Ready()}},
	)
}
