package clusters

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/node/kubeletconfig"
)

// simulate is the advice for a cluster without a real node.
const simulate = "--simulated-nodes=1 for a cluster that simulates its containers"

// checkDataDir says that the data directory holds something else, before
// anything is put there: `down --purge` removes all of it. It also says that a
// directory that is known from an earlier start has no data now, because a disk
// may not be mounted.
func checkDataDir(cmd *cobra.Command, p local.Profile) error {
	holds, err := p.Holds()
	if foreign, ok := errors.AsType[*local.ForeignError](err); ok {
		return fmt.Errorf("%w and is not empty; pass an empty or new directory with --data-dir", foreign)
	}
	if err != nil || holds || flag(cmd, "data-dir") != "" {
		return err
	}
	recorded, err := p.Recorded()
	if err != nil || recorded != p.DataDir {
		return err
	}
	return fmt.Errorf("cluster %[1]s was started last with its data in %[2]s, which has none now: is its disk mounted? "+
		"If you moved it, pass --data-dir with the new place; to start a new cluster there, pass --data-dir=%[2]s; to forget the directory, run `sampan down --purge --name=%[1]s`", p.Name, p.DataDir)
}

// acceptCopy is the flag that starts a copy of the data of a cluster.
const acceptCopy = "accept-copy"

func copyFlag(cmd *cobra.Command) {
	cmd.Flags().Bool(acceptCopy, false, "start a data directory that was copied, or brought from another machine: it has the keys of the original")
}

func acceptsCopy(cmd *cobra.Command) bool {
	yes, err := cmd.Flags().GetBool(acceptCopy)
	return yes && err == nil
}

// checkCopy says that the data directory is a copy, unless the administrator knows that.
func checkCopy(cmd *cobra.Command, p local.Profile) error {
	if acceptsCopy(cmd) {
		return nil
	}
	return p.CheckCopy()
}

// warnOfOtherData prints that another directory has the data of a cluster of that name, which the name alone does not find any
// more after a start with --data-dir.
func warnOfOtherData(cmd *cobra.Command, p local.Profile) error {
	other, err := p.Elsewhere()
	if other != "" {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %s has the data of another cluster %s, which is kept; commands for that one need --data-dir from now on\n", other, p.Name)
	}
	return err
}

// checkNoMember says that the data directory is that of a node of another cluster.
func checkNoMember(p local.Profile) error {
	m, member, err := p.Member()
	if member {
		err = fmt.Errorf("this machine is the node %s of the cluster at %s, with its data in %s; pass another name with --name, or remove the node with `sampan leave --name=%s`", m.Settings.NodeName, m.Server, p.DataDir, p.Name)
	}
	return err
}

// checkKubeletConfig reads the configuration of the node, and prints what has no effect of it.
func checkKubeletConfig(cmd *cobra.Command, s local.Settings) error {
	if s.KubeletConfig == "" || s.Simulated() {
		return nil
	}
	c, err := kubeletconfig.Load(s.KubeletConfig)
	if err != nil {
		return fmt.Errorf("--kubelet-config: %w", err)
	}
	for _, w := range c.Warnings {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %s: %s\n", s.KubeletConfig, w)
	}
	return nil
}
