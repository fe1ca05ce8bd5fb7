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
	Upstream string // name servers for other names, with commas between; empty means the host's, "none" nobody
	Metrics  string // where metrics are served, ADDRESS:PORT; empty means nowhere
	Networks []string
	Log      *slog.Logger
}

func dnsCommand(g *session.Globals, serve func(context.Context, *rest.Config, DNSOptions) error) *cobra.Command {
	var o DNSOptions
	var level slog.Level
	cmd := &cobra.Command{
		Use:   "dns --listen=ADDRESS",
		Short: "Run a name server for a cluster, until interrupted",
		Long: "Run Sampan's name server, alone, for the cluster that the kubeconfig names, until it is interrupted. It answers\n" +
			"for the names of services and their endpoints as the Kubernetes DNS specification says, over UDP and TCP, and\n" +
			"asks the name servers of this host for all others.",
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
	f.StringVar(&o.Listen, "listen", "", "address to be asked at, such as 192.0.2.1 or 127.0.0.1:5353; required")
	f.StringVar(&o.Domain, "cluster-domain", "cluster.local", "domain of the services' names")
	f.StringVar(&o.Upstream, "cluster-dns-upstream", "", "name servers for other names, with commas between, or none (default those of this host)")
	f.StringVar(&o.Metrics, "metrics-listen", "", "address at which /metrics, /ready and /health are served over HTTP, such as 127.0.0.1:9153 (default nowhere)")
	f.StringSliceVar(&o.Networks, "cluster-cidr", nil, "networks of pods and services: names of their addresses are not asked for elsewhere")
	f.TextVar(&level, "log-level", slog.LevelInfo, "least level of what is logged: debug, info, warn or error")
	_ = cmd.MarkFlagRequired("listen") // it exists: it was made above
	return cmd
}
