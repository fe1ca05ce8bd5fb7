package scheduling

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/cli/session"
)

// A Schedule is what `sampan scheduler` was asked for.
type Schedule struct {
	// Connect returns the server and the user; kubeconfig is what a configuration file says, and counts if no flag
	// names one.
	Connect func(kubeconfig string) (*rest.Config, error)

	Name              string // of the pods to place; empty means the default
	ConfigFile        string
	LeaderElect       *bool // nil: not said
	MetricsAddress    string
	CertFile, KeyFile string
}

// Command returns the verb scheduler, which runs schedule, and the verbs below it.
func Command(g *session.Globals, schedule func(context.Context, Schedule) error) *cobra.Command {
	var s Schedule
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
				s.LeaderElect = &elect
			}
			s.Connect = func(kubeconfig string) (*rest.Config, error) {
				if g.Kubeconfig == "" {
					g.Kubeconfig = kubeconfig
				}
				return g.Config()
			}
			return schedule(cmd.Context(), s)
		},
	}
	cmd.AddCommand(explainCommand(g))
	f := cmd.Flags()
	f.StringVar(&s.Name, "scheduler-name", "", "schedule pods whose spec.schedulerName is this (default \"default-scheduler\"); not with --config")
	f.StringVar(&s.ConfigFile, "config", "", "file with a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1)")
	f.BoolVar(&elect, "leader-elect", false, "schedule only while holding the Lease kube-system/kube-scheduler, or the one that --config names")
	f.StringVar(&s.MetricsAddress, "metrics-bind-address", "", "address on which to serve /metrics, /livez and /readyz (default: not served)")
	f.StringVar(&s.CertFile, "tls-cert-file", "", "TLS certificate for --metrics-bind-address; without it the address must be a loopback address")
	f.StringVar(&s.KeyFile, "tls-private-key-file", "", "TLS private key for --tls-cert-file")
	return cmd
}
