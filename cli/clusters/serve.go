package clusters

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/internal/run"
)

func serveCommand(o Options) *cobra.Command {
	var (
		s      local.Settings
		report bool
		brief  bool
		log    session.Log
		from   source
		many   int
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a cluster in the foreground, logging to standard error",
		Long: "Run a cluster in the foreground until SIGINT or SIGTERM, for use with an init system. The containers keep running\n" +
			"after the program has ended and are adopted at the next start; `sampan down` stops them. The flags are kept, as with\n" +
			"`sampan up`.",
		Example: "  sampan serve --name=edge --data-dir=/srv/edge\n  sampan serve --simulated-nodes=1 --ephemeral --name=test",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := from.check(cmd); err != nil {
				return err
			}
			// A closed log pipe must not end the cluster. Subscribing to the signal is enough,
			// and, unlike ignoring it, is not inherited by child processes.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			forgetOthers(cmd)
			var r local.Reporter
			if report {
				r = local.NewReporter()
			}
			var err error
			if wantsFleet(cmd) {
				err = serveFleet(cmd, o, s, many, r, log.To, brief)
			} else {
				err = serve(cmd, o, s, r, log.To(cmd.ErrOrStderr()), brief, from.maker(cmd, s))
			}
			if err != nil {
				r.Fail(err)
			}
			return err
		},
	}
	settingsFlags(cmd, &s)
	copyFlag(cmd)
	fleetFlag(cmd, &many)
	from.flags(cmd.Flags())
	log.AddFlag(cmd.Flags())
	cmd.Flags().BoolVar(&report, "report", false, "report readiness on file descriptor 3")
	cmd.Flags().BoolVar(&brief, "ephemeral", false, "stop when standard input is closed, and remove all containers and data")
	_ = cmd.Flags().MarkHidden("report") // it exists: the line above made it
	return cmd
}

// forgetOthers lets go of all other verbs. A server runs for long, and a tenth of the memory of an idle one was theirs.
func forgetOthers(cmd *cobra.Command) { cmd.Root().ResetCommands() }

func serve(cmd *cobra.Command, o Options, asked local.Settings, r local.Reporter, log *slog.Logger, brief bool, from func(local.Profile) error) (err error) {
	p, err := profileOf(cmd)
	if err != nil {
		return err
	}
	if brief { // the directory must be empty, and is removed at the end: there is nothing to record
		p.Default = ""
		if err := mustBeNew(p); err != nil {
			return err
		}
	} else if err := errors.Join(checkDataDir(cmd, p), checkNoMember(p), checkCopy(cmd, p)); err != nil {
		return err
	}
	if from != nil {
		if !brief {
			if p, _, err = restorable(cmd, false); err != nil {
				return err
			}
		}
		if err := from(p); err != nil {
			return err
		}
	}
	started := false
	if brief || from != nil {
		defer func() {
			if !started { // nothing else has used the data
				_, purgeErr := p.Remove(context.WithoutCancel(cmd.Context()))
				err = errors.Join(err, purgeErr)
			}
		}()
	}
	var networks local.Claims
	defer networks.Release()
	s, err := p.Settle(asked, &networks)
	if err != nil {
		return err
	}
	if err := errors.Join(p.CheckExpired(s, 0, time.Now()), checkSurroundings(s, simulate)); err != nil {
		return err
	}
	service := Service{
		Profile:  p,
		Settings: s,
		Flags:    flagValues(cmd, s),
		Report:   r,
		Log:      log,
	}
	started = true
	if !brief {
		return serveUntilExpired(cmd, o, service)
	}
	return serveBriefly(cmd, o, service)
}

// errExpired is why a cluster ends that has expired.
var errExpired = errors.New("the cluster has expired")

// untilExpired returns a context that is over when a cluster expires.
func untilExpired(ctx context.Context, s local.Settings) (context.Context, context.CancelFunc) {
	if s.Expiry.At.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, s.Expiry.At, errExpired)
}

// serveUntilExpired serves until the command is interrupted, or until the cluster has expired. Then it removes the
// cluster with its data and its context in the user's kubeconfig.
func serveUntilExpired(cmd *cobra.Command, o Options, s Service) error {
	ctx, cancel := untilExpired(cmd.Context(), s.Settings)
	defer cancel()
	err := o.Serve(ctx, s)
	if context.Cause(ctx) != errExpired { //nolint:errorlint // it is not wrapped
		return err
	}
	ctx = context.WithoutCancel(ctx)
	s.Log.InfoContext(ctx, "the cluster has expired and is removed with its data", "name", s.Profile.Name, "expired", s.Settings.Expiry.At)
	return errors.Join(err, removeOwn(ctx, o, s.Profile, flag(cmd, "kubeconfig")))
}

// removeOwn removes a cluster that ran in this process: its containers, its data, and its context in a kubeconfig.
func removeOwn(ctx context.Context, o Options, p local.Profile, kubeconfig string) error {
	err := endOwn(ctx, o, p)
	former := p.FormerContexts()
	if _, removeErr := p.Remove(ctx); removeErr != nil {
		return errors.Join(err, removeErr)
	}
	return errors.Join(err, p.Forget(ctx, kubeconfig, former))
}

// endOwn ends the containers of a cluster that ran in this process, and removes its kernel state and its run
// directory.
func endOwn(ctx context.Context, o Options, p local.Profile) error {
	i, _, err := p.Instance()
	if err != nil || !i.Exists() {
		return err
	}
	i.Process = local.Process{} // it is this one, which is not to be ended
	return end(ctx, o, p, i)
}

// defaultValue is the part of the usage of a flag that has a default of one word, which is a value.
var defaultValue = regexp.MustCompile(`\(default ([^ :A-Z)]+)\)`)

// flagValues returns the flags of a command with their values: those of settings as the cluster has them, whether they
// were passed at this start or kept from an earlier one, or else the default. Settings that were not chosen are empty,
// so that a later version can change the default: what that is now is known from the usage.
func flagValues(cmd *cobra.Command, settled local.Settings) map[string]string {
	all := map[string]string{}
	note := func(f *pflag.Flag) {
		all[f.Name] = f.Value.String()
		if match := defaultValue.FindStringSubmatch(f.Usage); match != nil && all[f.Name] == "" {
			all[f.Name] = match[1]
		}
	}
	cmd.Flags().VisitAll(note)
	kept := &cobra.Command{}
	settingsFlags(kept, &local.Settings{})
	if err := kept.Flags().Parse(settingsArgs(settled)); err == nil {
		kept.Flags().VisitAll(note)
	}
	delete(all, "token") // a secret of clients
	return all
}

// mustBeNew says that there is a cluster already, which must not be removed at the end.
func mustBeNew(p local.Profile) error {
	if holds, err := p.Holds(); holds || err != nil {
		return fmt.Errorf("--ephemeral needs an empty data directory, because it removes it at the end, but %s is not empty; nothing was changed", p.DataDir)
	}
	if i, _, err := p.Instance(); err != nil {
		return err
	} else if i.Exists() {
		return fmt.Errorf("--ephemeral needs a new cluster name, but cluster %s already exists on this machine; nothing was changed", p.Name)
	}
	return nil
}

// serveBriefly serves until standard input ends, and removes everything.
func serveBriefly(cmd *cobra.Command, o Options, s Service) error {
	ctx, cancel := untilExpired(cmd.Context(), s.Settings)
	defer cancel()
	input := run.NewGroup(ctx, 0)
	input.Go(func(context.Context) {
		_, _ = io.Copy(io.Discard, cmd.InOrStdin())
		cancel()
	})
	err := o.Serve(ctx, s)
	// The goroutine above is left to end with the process if the input goes on.
	endErr := endOwn(context.WithoutCancel(ctx), o, s.Profile)
	_, purgeErr := s.Profile.Remove(context.WithoutCancel(ctx))
	return errors.Join(err, endErr, purgeErr)
}
