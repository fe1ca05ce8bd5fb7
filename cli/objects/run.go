package objects

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/manifest"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
)

// Run returns the verb run, which makes a pod.
func Run(g *session.Globals) *cobra.Command {
	p := creating(g)
	var flags manifest.PodFlags
	cmd := &cobra.Command{
		Use:   "run NAME --image=IMAGE [-- ARGUMENT…]",
		Short: "Create a pod that runs an image",
		Example: "  sampan run web --image=nginx --port=80\n  sampan run try --image=busybox --restart=Never -- date\n" +
			"  sampan run try --image=busybox --restart=Never --command -- sh -c 'echo $A' --env=A=b",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || cmd.ArgsLenAtDash() == 0 {
				return exit.Usage(cmd.CommandPath(), errors.New("NAME is required for run"))
			}
			pod, service, err := flags.Objects(args[0], args[1:])
			if err != nil {
				return exit.Usage(cmd.CommandPath(), err)
			}
			if service != nil {
				if err := p.made(cmd.Context(), resource.MappingOf(client.Services), "", service); err != nil {
					return err
				}
			}
			return p.made(cmd.Context(), resource.MappingOf(client.Pods), "", pod)
		},
	}
	flags.Add(cmd.Flags())
	p.flags(cmd, "kubectl-run")
	return cmd
}
