package clusters

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cluster/local"
)

func upCommand(o Options) *cobra.Command {
	var (
		s    local.Settings
		from source
		many int
	)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster in the background and wait until it is ready",
		Long: "Start a cluster in the background. The command returns when the API server responds and every node is Ready, and makes\n" +
			"the cluster's context the current context of the kubeconfig. A stopped cluster is started with its data; a running\n" +
			"cluster is left unchanged. The flags are kept: `sampan up` alone starts it again with the same settings. A real node\n" +
			"needs root; simulated nodes do not.",
		Example: "  sampan up\n  sampan up --simulated-nodes=3\n  sampan up --name=test --data-dir=/srv/test\n  sampan up --name=copy --from=nightly.snapshot\n  sampan up --advertise-address=192.0.2.1\n  sampan up --clusters=20 --name=ci --expires=1h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wantsFleet(cmd) {
				return upFleet(cmd, o, s, many)
			}
			if err := from.check(cmd); err != nil {
				return err
			}
			return up(cmd, o, s, from.maker(cmd, s))
		},
	}
	fleetFlag(cmd, &many)
	settingsFlags(cmd, &s)
	copyFlag(cmd)
	from.flags(cmd.Flags())
	return cmd
}

// up starts a cluster, unless it runs, and makes its context the current one. From, if not nil, makes the data of a
// new cluster.
func up(cmd *cobra.Command, o Options, s local.Settings, from func(local.Profile) error) error {
	printed, err := asObject(cmd)
	if err != nil {
		return err
	}
	// Check this before the start: a running cluster without a kubeconfig would be useless.
	if err := local.Mergeable(flag(cmd, "kubeconfig")); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if printed {
		out = io.Discard // it is all in the object
	}
	p, i, running, err := found(cmd)
	if err != nil {
		return err
	}
	if err := checkNoMember(p); err != nil {
		return err
	}
	if err := damaged(p, i); running && err != nil {
		return err
	}
	if running && i.Starting() {
		return fmt.Errorf("cluster %s is already being started by process %d; wait for it, or stop it with %s", p.Name, i.Process.PID, hint(cmd, "down"))
	}
	made := false // the data of the cluster are new, and of no use if it does not start
	if from != nil {
		if running || i.Exists() || holds(p) {
			return fmt.Errorf("cluster %s exists already, and a snapshot makes a new one: pass another --name; nothing was changed", p.Name)
		}
		if p, _, err = restorable(cmd, false); err != nil {
			return err
		}
		if err := from(p); err != nil {
			return err
		}
		made = true
	}
	if running {
		if err := p.Differ(s); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "cluster %s is already running\n", p.Name)
		if differs := versionDiffers(o, p, i); differs != "" {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %s\n", differs)
		}
	} else if i, err = start(cmd, o, p, s, made); err != nil && made {
		return errors.Join(err, unmake(cmd, p))
	} else if err != nil {
		return err
	} else {
		_, _ = fmt.Fprintf(out, "cluster %s is ready after %v\n", p.Name, i.ReadyAfter.Round(time.Millisecond))
	}
	if !i.Simulated {
		warnOfConditions(cmd, p)
	}
	warnOfStart(cmd, i)
	warnOfRefusedWrites(cmd, p)
	file, err := p.Merge(cmd.Context(), flag(cmd, "kubeconfig"))
	if err != nil {
		return fmt.Errorf("cluster %s is running, but %w; %s prints the kubeconfig", p.Name, err, hint(cmd, "kubeconfig"))
	}
	if printed {
		return encode(cmd, started{i, running, file, p.Context()})
	}
	_, _ = fmt.Fprintf(out, "API server %s, context %q in %s\n", i.Server, p.Context(), file)
	return nil
}

// unmake removes the data of a cluster that was made from a snapshot and did not start, so that the corrected command
// can make it again.
func unmake(cmd *cobra.Command, p local.Profile) error {
	if _, err := p.Remove(context.WithoutCancel(cmd.Context())); err != nil {
		return fmt.Errorf("what was made of it is left in %s: %w", p.DataDir, err)
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "removed what was made of cluster %s\n", p.Name)
	return nil
}

// started is what -o json and -o yaml print of a cluster that is up.
type started struct {
	local.Instance
	Already    bool   `json:"already,omitempty"` // it was running before
	Kubeconfig string `json:"kubeconfig"`        // file
	Context    string `json:"context"`           // in it
}

// seeAlso points to a log, if there is one.
func seeAlso(log string) string {
	if info, err := os.Stat(log); err != nil || info.Size() == 0 {
		return ""
	}
	return fmt.Sprintf(" (log: %s)", log)
}

// start runs a cluster in the background and waits until it is ready. If the start
// fails or is interrupted, start removes the kernel objects that it made, unless pods
// were running before. Made says that the caller removes the data of a failed start.
func start(cmd *cobra.Command, o Options, p local.Profile, asked local.Settings, made bool) (local.Instance, error) {
	// Invalid settings are reported here. The program in the background
	// settles them itself, because it must hold the networks that it chooses.
	s, err := p.Settle(asked, nil)
	if err != nil {
		return local.Instance{}, err
	}
	if err := errors.Join(p.CheckExpired(s, 0, time.Now()), checkSurroundings(s, simulate)); err != nil {
		return local.Instance{}, err
	}
	if err := checkKubeletConfig(cmd, s); err != nil {
		return local.Instance{}, err
	}
	if err := errors.Join(checkDataDir(cmd, p), checkCopy(cmd, p)); err != nil {
		return local.Instance{}, err
	}
	if err := warnOfOtherData(cmd, p); err != nil { // after all that may refuse the start
		return local.Instance{}, err
	}
	program, err := os.Executable()
	if err != nil {
		return local.Instance{}, err
	}
	before, _, err := p.Instance()
	if err != nil {
		return local.Instance{}, err
	}
	args := append([]string{"serve", "--report", "--name=" + p.Name, "--data-dir=" + p.DataDir}, settingsArgs(asked)...)
	if acceptsCopy(cmd) {
		args = append(args, "--"+acceptCopy)
	}
	if !s.Expiry.At.IsZero() { // the program removes the context of the cluster at its end
		file, err := local.UserKubeconfig(flag(cmd, "kubeconfig"))
		if err != nil {
			return local.Instance{}, err
		}
		args = append(args, "--kubeconfig="+file)
	}
	i, err := local.Start(cmd.Context(), p, program, args, func(step string) {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s\n", step)
	})
	if err == nil {
		return i, nil
	}
	if ctx := cmd.Context(); ctx.Err() != nil {
		err = context.Cause(ctx)
	} else {
		err = fmt.Errorf("cluster %s did not start: %w", p.Name, err)
		if !made {
			err = fmt.Errorf("%w%s", err, seeAlso(p.Log()))
		}
	}
	if !made {
		if kept := recordFailed(p); kept != "" {
			err = fmt.Errorf("%w\n%s", err, kept)
		}
	}
	after, running, lookErr := p.Instance()
	if lookErr != nil || running || before.Runtime.Alive() || !after.Exists() {
		return i, errors.Join(err, lookErr)
	}
	return i, errors.Join(err, end(context.WithoutCancel(cmd.Context()), o, p, after))
}

// recordFailed records the data directory of a start that failed, so that `down --purge` finds what it left by the
// name alone. A record of an earlier start stays. It returns a sentence for the user, or "".
func recordFailed(p local.Profile) string {
	if p.DataDir == p.Default {
		return ""
	}
	recorded, err := p.Recorded()
	other, otherErr := p.Elsewhere()
	holds, holdsErr := p.Holds()
	if err != nil || otherErr != nil || holdsErr != nil || !holds || recorded != "" || other != "" {
		return ""
	}
	if err := p.Record(); err != nil {
		return ""
	}
	return fmt.Sprintf("what it left is in %s; `sampan down --purge%s` removes it", p.DataDir, p.NameFlag())
}
