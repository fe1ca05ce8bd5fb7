package scheduling

import (
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/config"
	"github.com/sampan-io/sampan/scheduler/standalone"
)

// Command returns the command scheduler, which runs the scheduler of a cluster that may not be Sampan's, and its
// subcommands.
func Command(g *session.Globals) *cobra.Command {
	o := standalone.Options{Plugins: config.Available{Default: builtin.Default()}, UserAgent: "sampan-scheduler/" + g.Version}
	var elect bool
	cmd := &cobra.Command{
		Use:   "scheduler",
		Short: "Run only the scheduler, for any cluster",
		Long: "Run only Sampan's scheduler, against the cluster of the kubeconfig, until it is interrupted. It schedules the pods\n" +
			"whose spec.schedulerName is its name, so it can run beside other schedulers. With --leader-elect several instances can\n" +
			"run, and one of them is active.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("leader-elect") {
				o.LeaderElect = &elect
			}
			o.Connect = func(kubeconfig string) (*rest.Config, error) {
				if g.Kubeconfig == "" {
					g.Kubeconfig = kubeconfig
				}
				return g.Config()
			}
			return standalone.Run(cmd.Context(), o)
		},
	}
	cmd.AddCommand(explainCommand(g))
	f := cmd.Flags()
	f.StringVar(&o.Name, "scheduler-name", "", "schedule pods whose spec.schedulerName is this (default \"default-scheduler\"); not with --config")
	f.StringVar(&o.ConfigFile, "config", "", "file with a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1)")
	f.BoolVar(&elect, "leader-elect", false, "schedule only while holding the Lease kube-system/kube-scheduler, or the one that --config names")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", "", "address on which to serve /metrics, /livez and /readyz (default: not served)")
	f.StringVar(&o.CertFile, "tls-cert-file", "", "TLS certificate for --metrics-bind-address; without it the address must be a loopback address")
	f.StringVar(&o.KeyFile, "tls-private-key-file", "", "TLS private key for --tls-cert-file")
	return cmd
}
