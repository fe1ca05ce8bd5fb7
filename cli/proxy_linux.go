//go:build !portable

package cli

import (
	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/proxy/standalone"
)

// proxyCommand returns the command proxy, which runs the service proxy of a cluster that may not be Sampan's.
func proxyCommand(g *session.Globals) *cobra.Command {
	o := standalone.Options{Connect: g.Config, UserAgent: "sampan-proxy/" + g.Version}
	var cleanup bool
	var log session.Log
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Run only the service proxy of this node, for any cluster",
		Long: "Run only Sampan's service proxy on this node, for the cluster of the kubeconfig, until it is interrupted. It replaces\n" +
			"kube-proxy: stop that first. It needs root. On exit it removes its rules and links, unless --keep-rules is set;\n" +
			"--cleanup removes those of a proxy that was killed or that kept its rules.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = log.To(cmd.ErrOrStderr())
			if cleanup {
				return standalone.Cleanup(o)
			}
			return standalone.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Node, "hostname-override", "", "name of the node (default: the name of this host)")
	f.StringVar(&o.BindAddress, "bind-address", "", "address of this host on which to accept connections to relayed Services (default: the node's address)")
	f.StringVar(&o.Mode, "proxy-mode", "kernel", "default proxy mode of Services: kernel or userspace")
	f.StringSliceVar(&o.NodePortAddresses, "nodeport-addresses", nil, "networks of this host's addresses that serve node ports (default: all except loopback)")
	f.StringSliceVar(&o.ClusterCIDR, "cluster-cidr", nil, "pod networks: connections to a cluster IP from other sources are masqueraded (default: the node's spec.podCIDRs)")
	f.StringSliceVar(&o.ServiceCIDR, "service-cluster-ip-range", nil, "networks of cluster IPs: connections to an address without a Service are rejected, and endpoints in them are ignored (default: the cluster's ServiceCIDRs)")
	f.BoolVar(&o.Announce, "announce-load-balancers", false, "announce load balancer addresses on the links of this node (ARP, NDP); the nodes whose proxies have this flag share the addresses")
	f.StringVar(&o.HealthzAddress, "healthz-bind-address", "", "address to serve /healthz and /livez on over HTTP, such as 0.0.0.0:10256 (default: not served)")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", "", "loopback address to serve /metrics on over HTTP, such as 127.0.0.1:10249 (default: not served)")
	f.BoolVar(&o.Keep, "keep-rules", false, "leave the rules in place on exit, so that the next proxy takes them over without interruption")
	f.BoolVar(&cleanup, "cleanup", false, "remove the rules and links of an earlier proxy from this node, and exit")
	log.AddFlag(f)
	return cmd
}
