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
		Short: "Run a scheduler against a cluster, until interrupted",
		Long: "Run Sampan's scheduler, alone, against the cluster that the kubeconfig names, until it is interrupted.\n" +
			"It places the pods whose schedulerName is its name, so that it can work beside others. With --leader-elect\n" +
			"several can run, and one of them works.",
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
	f.StringVar(&s.Name, "scheduler-name", "", "the schedulerName of the pods to place (default \"default-scheduler\"); not with --config")
	f.StringVar(&s.ConfigFile, "config", "", "file with a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1)")
	f.BoolVar(&elect, "leader-elect", false, "work only while holding the lease kube-system/kube-scheduler, or the one that --config names")
	f.StringVar(&s.MetricsAddress, "metrics-bind-address", "", "address on which to serve /metrics, /livez and /readyz (default: nowhere)")
	f.StringVar(&s.CertFile, "tls-cert-file", "", "certificate of that server, which without one must be on loopback")
	f.StringVar(&s.KeyFile, "tls-private-key-file", "", "key of that server")
	return cmd
}
