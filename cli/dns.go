package cli

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/cli/session"
)

// DNSOptions is how a name server runs alone. Addresses are as the user gave them.
type DNSOptions struct {
	Listen   string // ADDRESS or ADDRESS:PORT
	Domain   string // of the cluster
	Upstream string // comma-separated name servers for other names; empty means the host's, "none" disables forwarding
	Metrics  string // listen address of the metrics, ADDRESS:PORT; empty means not served
	Networks []string
	Log      *slog.Logger
}

func dnsCommand(g *session.Globals, serve func(context.Context, *rest.Config, DNSOptions) error) *cobra.Command {
	var o DNSOptions
	var level slog.Level
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
			o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			return serve(cmd.Context(), cfg, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "", "address to serve DNS on, such as 192.0.2.1 or 127.0.0.1:5353 (required)")
	f.StringVar(&o.Domain, "cluster-domain", "cluster.local", "DNS domain of the cluster")
	f.StringVar(&o.Upstream, "cluster-dns-upstream", "", "comma-separated name servers for names outside the cluster, or none (default: those of this host)")
	f.StringVar(&o.Metrics, "metrics-listen", "", "address to serve /metrics, /ready and /health on over HTTP, such as 127.0.0.1:9153 (default: not served)")
	f.StringSliceVar(&o.Networks, "cluster-cidr", nil, "networks of pods and services, whose reverse lookups are not forwarded to other name servers")
	f.TextVar(&level, "log-level", slog.LevelInfo, "minimum level of log messages: debug, info, warn or error")
	_ = cmd.MarkFlagRequired("listen") // it exists: it was made above
	return cmd
}
