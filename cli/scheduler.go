package cli

import (
	"context"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/cli/session"
)

func schedulerCommand(g *session.Globals, schedule func(context.Context, *rest.Config, string) error) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "scheduler",
		Short: "Run a scheduler against a cluster, until interrupted",
		Long: "Run Sampan's scheduler, alone, against the cluster that the kubeconfig names, until it is interrupted.\n" +
			"It places the pods whose schedulerName is its name, so that it can work beside others.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := g.Config()
			if err != nil {
				return err
			}
			return schedule(cmd.Context(), cfg, name)
		},
	}
	cmd.Flags().StringVar(&name, "scheduler-name", corev1.DefaultSchedulerName, "the schedulerName of the pods to place")
	return cmd
}
