package cli

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
)

func schedulerCommand(g *Globals, schedule func(context.Context, *rest.Config) error) *cobra.Command {
	return &cobra.Command{
		Use:   "scheduler",
		Short: "Run a scheduler against a cluster, until interrupted",
		Long:  "Run Sampan's scheduler, alone, against the cluster that the kubeconfig names, until it is interrupted.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := g.Config()
			if err != nil {
				return err
			}
			return schedule(cmd.Context(), cfg)
		},
	}
}
