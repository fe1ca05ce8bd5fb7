package clusters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/snapshots"
)

// patience is how long a process may take to stop before it is killed: the
// longest thing that it does then is to give containers their time.
const patience = 40 * time.Second

func downCommand(o Options) *cobra.Command {
	var purge, many bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop a cluster and everything that it runs",
		Long: "Stop a cluster: end its processes and containers, and remove its mounts, links, rules, cgroups and namespaces. The\n" +
			"data is kept for the next `sampan up`; --purge removes it.",
		Example: "  sampan down\n  sampan down --name=test --purge",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if many {
				return downFleet(cmd, o, purge)
			}
			p, i, running, err := found(cmd)
			if err != nil {
				return err
			}
			stopped := false
			if !running {
				if stopped, err = endStarters(cmd.Context(), p); err != nil {
					return err
				}
				if p, i, _, err = found(cmd); err != nil {
					return err
				}
			}
			was := i.Exists()
			other, differs := otherCurrent(cmd, p)
			if differs && (was || stopped || purge && holds(p)) {
				if err := confirm(cmd, p, other, whatDown(purge)); err != nil {
					return err
				}
			}
			if !was && !stopped {
				if theirs := p.OtherUsers(); theirs != "" && !(purge && holds(p)) {
					return fmt.Errorf("%s is not running; %s", subject(p), theirs)
				}
				if differs {
					_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "the current context is that of cluster %s: --name=%[1]s means that one\n", other.Name)
				}
			}
			if was {
				if err := end(cmd.Context(), o, p, i); err != nil {
					return err
				}
			}
			out, what := cmd.OutOrStdout(), subject(p)
			if purge {
				return purged(cmd, p, was, stopped)
			}
			if !was && !stopped {
				_, _ = fmt.Fprintf(out, "%s is not running\n", what)
				return nil
			}
			_, _ = fmt.Fprintf(out, "%s is stopped\n", what)
			for _, socket := range p.DriverSockets() {
				_, _ = fmt.Fprintf(out, "left %s of a program on this machine\n", socket)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&many, clustersFlag, false, "stop all clusters that `up --clusters` has started with this --name")
	cmd.Flags().BoolVar(&purge, "purge", false, "also remove the cluster's data and its context in the kubeconfig")
	return cmd
}

// purged removes the data of a cluster that does not run any more, and what is recorded of it. was says that it ran until now or had left
// something, and stopped that its start was stopped.
func purged(cmd *cobra.Command, p local.Profile, was, stopped bool) error {
	out, what := cmd.OutOrStdout(), subject(p)
	drivers, former := p.DriverSockets(), p.FormerContexts()
	saved, _ := snapshots.List(p.Snapshots()) // they are counted if they can be
	had, err := p.Remove(cmd.Context())
	foreign, isForeign := errors.AsType[*local.ForeignError](err)
	switch {
	case isForeign && was: // the data was removed while the cluster ran, which has written some of it again
		if err := p.Unrecord(); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "%s is stopped; its data was removed before, and what is left in %s is not touched: remove that yourself if it is of no use\n", what, foreign.Dir)
	case err != nil:
		return err
	case was && !had:
		_, _ = fmt.Fprintf(out, "%s is stopped; there is no data in %s\n", what, p.DataDir)
	case had || stopped:
		_, _ = fmt.Fprintf(out, "%s is stopped, its data is removed%s\n", what, andSnapshots(len(saved)))
		for _, socket := range drivers {
			_, _ = fmt.Fprintf(out, "removed %s of a program on this machine: stop that, or start it again after the next `sampan up`\n", socket)
		}
	default:
		_, _ = fmt.Fprintf(out, "%s is not running and has no data in %s\n", what, p.DataDir)
	}
	return p.Forget(cmd.Context(), flag(cmd, "kubeconfig"), former)
}

// andSnapshots returns how many snapshots were removed with the data of a cluster, as the end of a line.
func andSnapshots(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", and the snapshot in it"
	}
	return fmt.Sprintf(", and the %d snapshots in it", n)
}

// whatDown returns the command's effect on a cluster, in a verb.
func whatDown(purge bool) string {
	if purge {
		return "stop and remove"
	}
	return "stop"
}

// holds reports whether there are data of the cluster.
func holds(p local.Profile) bool {
	has, err := p.Holds()
	return has && err == nil
}

// subject returns the name of a cluster in messages: the node, if it is one of another machine's cluster.
func subject(p local.Profile) string {
	if m, member, err := p.Member(); err == nil && member {
		return fmt.Sprintf("node %s of the cluster at %s", m.Settings.NodeName, m.Server)
	}
	return "cluster " + p.Name
}

// endStarters stops the processes that are starting a cluster which has not written its
// state yet, and waits until they have exited. It reports whether there were any.
func endStarters(ctx context.Context, p local.Profile) (bool, error) {
	starters, err := p.Starters()
	if err != nil {
		return false, err
	}
	for _, s := range starters {
		// The process stops its cluster and removes the rest of it.
		if err := local.End(ctx, s, patience); err != nil {
			return true, fmt.Errorf("stopping the start of cluster %s: %w", p.Name, err)
		}
	}
	return len(starters) > 0, nil
}

// end ends the processes of a cluster and removes their kernel state.
func end(ctx context.Context, o Options, p local.Profile, i local.Instance) error {
	// The cluster first: it would take the end of its containers for a fault.
	if i.Shared && i.Process.PID != 0 {
		if err := p.StopShared(ctx, i, patience); err != nil {
			return err
		}
	} else if err := local.End(ctx, i.Process, patience); err != nil {
		return err
	}
	// One that was starting has perhaps started its runtime since it was looked for.
	now, _, err := p.Instance()
	if err != nil {
		return err
	}
	if now.Runtime != (local.Runtime{}) {
		i.Runtime = now.Runtime
	}
	if err := local.End(ctx, i.Runtime.Process, patience); err != nil {
		return err
	}
	release, left, err := p.Alone()
	if err != nil {
		return err
	}
	defer release()
	if !left {
		return nil // another command has cleaned up already
	}
	if err := o.Clean(ctx, p, i); err != nil {
		return fmt.Errorf("cluster %s is stopped, but cleaning up failed; `sampan down%s` tries it again: %w", p.Name, p.NameFlag(), err)
	}
	if err := os.RemoveAll(p.RunDir); err != nil {
		return fmt.Errorf("removing the run directory: %w", err)
	}
	return nil
}
