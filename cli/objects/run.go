package objects

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/manifest"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
)

// A Foreground attaches to a new pod with one container. Its error has the exit code of the container.
type Foreground func(ctx context.Context, name string, how session.Foreground) error

// Run returns the verb run, which makes a pod.
func Run(g *session.Globals, foreground Foreground) *cobra.Command {
	p := creating(g)
	var flags manifest.PodFlags
	var attach bool
	var how session.Foreground
	cmd := &cobra.Command{
		Use:   "run NAME --image=IMAGE [-it] [--rm] [-- ARGUMENT…]",
		Short: "Create a pod that runs an image",
		Long: "Create a pod with one container. With -i or --attach, wait until it runs, attach to it, and exit with its exit code if\n" +
			"it is not restarted (--restart=Never). With -it, --detach-keys end the command (exit code 0), and the pod goes on.",
		Example: "  sampan run web --image=nginx --port=80\n  sampan run try --image=busybox --restart=Never -- date\n" +
			"  sampan run try --image=busybox --restart=Never --env=A=b --command -- sh -c 'echo $A'\n" +
			"  sampan run try --image=busybox --restart=Never -it --rm -- sh",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || cmd.ArgsLenAtDash() == 0 {
				return exit.Usage(cmd.CommandPath(), errors.New("NAME is required for run"))
			}
			if !cmd.Flags().Changed("attach") && flags.Interactive() {
				attach = true
			}
			attach = attach && p.dryRun == "none"
			if how.Remove && !attach && p.dryRun == "none" {
				return exit.Usage(cmd.CommandPath(), errors.New("--rm should only be used for attached containers"))
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
			if attach {
				p.silent = true
			}
			if err := p.made(cmd.Context(), resource.MappingOf(client.Pods), "", pod); err != nil || !attach {
				return err
			}
			if how.Quiet, err = cmd.Flags().GetBool("quiet"); err != nil { // a flag of waiting
				return err
			}
			c := &pod.Spec.Containers[0]
			how.Stdin, how.TTY = c.Stdin, c.TTY
			return foreground(cmd.Context(), pod.Name, how)
		},
	}
	flags.Add(cmd.Flags())
	f := cmd.Flags()
	f.BoolVar(&attach, "attach", false, "wait until the pod runs, and attach to it (default true with -i)")
	f.BoolVar(&how.Remove, "rm", false, "delete the pod when it ends or the command is interrupted or detached; with -i or --attach")
	how.Detach.AddFlag(f)
	p.flags(cmd, "kubectl-run")
	return cmd
}
