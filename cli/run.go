package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cli/manifest"
	"github.com/sampan-io/sampan/client"
)

// runVerb makes one pod.
type runVerb struct {
	create // how it is made
	flags  manifest.PodFlags
}

func runCommand(g *Globals) *cobra.Command {
	r := &runVerb{create: create{Globals: g}}
	cmd := &cobra.Command{
		Use:   "run NAME --image=IMAGE [-- ARGUMENT…]",
		Short: "Create a pod that runs an image",
		Example: "  sampan run web --image=nginx --port=80\n  sampan run try --image=busybox --restart=Never -- date\n" +
			"  sampan run try --image=busybox --restart=Never --command -- sh -c 'echo $A' --env=A=b",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || cmd.ArgsLenAtDash() == 0 {
				return &usageError{cmd.CommandPath(), errors.New("NAME is required for run")}
			}
			return r.run(cmd, args[0], args[1:])
		},
	}
	r.flags.Add(cmd.Flags())
	r.makeFlags(cmd, "kubectl-run")
	cmd.AddCommand(runJobCommand(g))
	g.waits(cmd, &r.wrote, waitOptions{done: "created", timeout: writeTimeout})
	return cmd
}

func (r *runVerb) run(cmd *cobra.Command, name string, rest []string) error {
	pod, service, err := r.flags.Objects(name, rest)
	if err != nil {
		return &usageError{cmd.CommandPath(), err}
	}
	if service != nil {
		if err := r.make(cmd.Context(), mappingOf(client.Services), service); err != nil {
			return err
		}
	}
	return r.make(cmd.Context(), mappingOf(client.Pods), pod)
}
