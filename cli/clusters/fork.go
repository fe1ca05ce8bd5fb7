package clusters

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/snapshots"
)

func forkCommand(o Options) *cobra.Command {
	var s local.Settings
	cmd := &cobra.Command{
		Use:   "fork [CLUSTER] --name=NAME",
		Short: "Start an independent cluster with the objects of a running one",
		Long: "Start a new cluster with the objects that a running cluster of this machine has now. The cluster that is copied is the\n" +
			"argument, or the one with the default name; it runs on. The new one has an ID, a certificate authority and keys of its own.\n" +
			"With simulated nodes it has their pods as well; on a real node pods begin again. `sampan up --from` does the same with\n" +
			"a file.",
		Example: "  sampan fork --name=experiment\n  sampan fork edge --name=experiment --simulated-nodes=3",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return runningNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f := cmd.Flag("name"); f == nil || !f.Changed {
				return exit.Usage(cmd.CommandPath(), errors.New("--name: must be the name of the new cluster"))
			}
			name := local.DefaultName
			if len(args) > 0 {
				name = args[0]
			} else if err := hintFork(cmd); err != nil {
				return err
			}
			if target, err := named(cmd); err != nil {
				return err
			} else if target.Name == name {
				return fmt.Errorf("--name: must be the name of a new cluster, got that of the original, %s", name)
			}
			c, err := runningCredentials(name)
			if err != nil {
				return err
			}
			return up(cmd, o, s, func(p local.Profile) error {
				in, err := snapshots.Fetch(cmd.Context(), c, true)
				if err != nil {
					return fmt.Errorf("cluster %s: %w", name, err)
				}
				var from origin
				return errors.Join(from.restore(cmd, p, s, in), in.Close())
			})
		},
	}
	settingsFlags(cmd, &s)
	copyFlag(cmd)
	return cmd
}

// hintFork says that the current context is that of another cluster than the one that is copied without an argument.
func hintFork(cmd *cobra.Command) error {
	p, err := local.NewProfile(local.DefaultName, "")
	if err != nil {
		return err
	}
	if other, differs := currentOther(cmd, p); differs {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "the current context is that of cluster %s: `sampan fork %[1]s` copies that one\n", other.Name)
	}
	return nil
}

// runningOthers returns a line with the running clusters that can be copied, for the end of an error, or "".
func runningOthers() string {
	names := runningNames()
	if len(names) == 0 {
		return ""
	}
	return "\nrunning on this machine: " + strings.Join(names, ", ")
}

// runningNames returns the names of the running clusters of this machine that can be copied.
func runningNames() (names []string) {
	p, err := local.NewProfile(local.DefaultName, "")
	if err != nil {
		return nil
	}
	clusters, _ := p.Clusters() // the readable ones
	for _, c := range clusters {
		if c.Running && !c.Instance.Member {
			names = append(names, c.Name)
		}
	}
	return names
}

// runningCredentials returns the credentials of the administrator of a running cluster of this machine.
func runningCredentials(name string) (local.Credentials, error) {
	p, err := local.NewProfile(name, "")
	if err != nil {
		return local.Credentials{}, err
	}
	i, running, err := p.Instance()
	if err != nil {
		return local.Credentials{}, err
	}
	if !running {
		return local.Credentials{}, fmt.Errorf("cluster %s is not running; start it with `sampan up%s`%s", name, p.NameFlag(), runningOthers())
	}
	p = p.At(i)
	c, ok := p.SavedCredentials()
	if !ok {
		return c, fmt.Errorf("cluster %s has no credentials in %s", name, p.Kubeconfig())
	}
	return c, nil
}
