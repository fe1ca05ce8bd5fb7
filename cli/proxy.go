package cli

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/cli/session"
)

// ProxyOptions is how a service proxy runs alone, as the user wrote it.
type ProxyOptions struct {
	Node, BindAddress, Mode                     string
	NodePortAddresses, ClusterCIDR, ServiceCIDR []string
	HealthzAddress, MetricsAddress              string
	Keep                                        bool // the rules stay when it ends
	Announce                                    bool // answer for addresses of load balancers
	Cleanup                                     bool // only remove what an earlier one left
	Log                                         *slog.Logger
}

// proxyCommand returns the verb proxy. Connect is called only if a server is needed.
func proxyCommand(g *session.Globals, serve func(ctx context.Context, connect func() (*rest.Config, error), o ProxyOptions) error) *cobra.Command {
	var o ProxyOptions
	var level slog.Level
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Run the service proxy of this node for a cluster, until interrupted",
		Long: "Run Sampan's service proxy, alone, on this node of the cluster that the kubeconfig names, until it is interrupted.\n" +
			"It takes the place of kube-proxy: stop that first. It needs root, and what it made goes with it, unless --keep-rules\n" +
			"says otherwise; --cleanup removes what one that was killed, or kept its rules, has left.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			return serve(cmd.Context(), g.Config, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Node, "hostname-override", "", "name of the node (default the name of this host)")
	f.StringVar(&o.BindAddress, "bind-address", "", "address of this host for the sockets of relayed services (default that of the node)")
	f.StringVar(&o.Mode, "proxy-mode", "kernel", "how services are proxied that do not say it themselves: kernel or userspace")
	f.StringSliceVar(&o.NodePortAddresses, "nodeport-addresses", nil, "networks of the addresses of this host that have node ports (default all but loopback)")
	f.StringSliceVar(&o.ClusterCIDR, "cluster-cidr", nil, "networks of pods: who comes from elsewhere to a cluster IP is masqueraded (default those of the node)")
	f.StringSliceVar(&o.ServiceCIDR, "service-cluster-ip-range", nil, "networks of cluster IPs: what is sent there and has no service is refused, and no endpoint is there (default those of the cluster's ServiceCIDRs)")
	f.BoolVar(&o.Announce, "announce-load-balancers", false, "answer on the links of this node for its share of the addresses of load balancers; the other nodes whose proxies have this flag have theirs")
	f.StringVar(&o.HealthzAddress, "healthz-bind-address", "", "where /healthz and /livez are served over HTTP, such as 0.0.0.0:10256 (default nowhere)")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", "", "address of loopback at which /metrics is served over HTTP, such as 127.0.0.1:10249 (default nowhere)")
	f.BoolVar(&o.Keep, "keep-rules", false, "when told to stop, leave the rules to the next one, which takes them over without a break")
	f.BoolVar(&o.Cleanup, "cleanup", false, "remove what an earlier proxy has left on this node, and end")
	f.TextVar(&level, "log-level", slog.LevelInfo, "least level of what is logged: debug, info, warn or error")
	return cmd
}
