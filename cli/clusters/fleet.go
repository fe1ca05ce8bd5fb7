package clusters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/internal/run"
)

// clustersFlag is the flag that makes a command one about several clusters.
const clustersFlag = "clusters"

// fleetFlag adds the number of clusters.
func fleetFlag(cmd *cobra.Command, to *int) {
	cmd.Flags().IntVar(to, clustersFlag, 0, "number of clusters with simulated nodes to run in one process: NAME-1, NAME-2 and so on, each with a port, keys and data of its own")
}

// wantsFleet reports whether a command is about several clusters.
func wantsFleet(cmd *cobra.Command) bool { return cmd.Flags().Changed(clustersFlag) }

// fleet returns the clusters that --name and --clusters name, with the settings that they have in common.
func fleet(cmd *cobra.Command, clusters int, s local.Settings) ([]local.Profile, local.Settings, error) {
	prefix := flag(cmd, "name")
	names, err := local.FleetNames(prefix, clusters)
	if err != nil {
		return nil, s, err
	}
	for _, name := range []string{"api-port", "advertise-address", "from"} {
		if f := cmd.Flag(name); f != nil && f.Changed {
			return nil, s, fmt.Errorf("--%s cannot be used with --%s: it is about one cluster", name, clustersFlag)
		}
	}
	if !s.Simulated() {
		s.SimulatedNodes = 1
	}
	s.Fleet = prefix
	var all []local.Profile
	for _, name := range names {
		p, err := profileIn(cmd, name)
		if err != nil {
			return nil, s, err
		}
		all = append(all, p)
	}
	return all, s, nil
}

// profileIn returns the cluster of a fleet with this name. Its data is in a directory with its name below --data-dir,
// if that was passed.
func profileIn(cmd *cobra.Command, name string) (local.Profile, error) {
	if dir := flag(cmd, "data-dir"); dir != "" {
		return local.NewProfile(name, filepath.Join(dir, name))
	}
	p, err := local.NewProfile(name, "")
	if err != nil {
		return p, err
	}
	i, _, err := p.Instance()
	if err != nil {
		return p, err
	}
	if i.DataDir != "" {
		return p.At(i), nil
	}
	return p.Located()
}

// stoppedOf returns the clusters that do not run, the running ones, and, with the errors, the ones whose settings
// cannot be read. A cluster that was not started with the same prefix is an error.
func stoppedOf(all []local.Profile, s local.Settings) (stopped, running []local.Profile, unread []local.Started, err error) {
	for _, p := range all {
		i, runs, err := p.Instance()
		if err != nil {
			return nil, nil, nil, err
		}
		of, exists, err := p.Fleet()
		if err != nil {
			unread = append(unread, local.Started{Profile: p, Err: err})
			continue
		}
		if (runs || exists) && of != s.Fleet {
			return nil, nil, nil, fmt.Errorf("cluster %s exists already, and was not started with --%s: pass another --name; nothing was changed", p.Name, clustersFlag)
		}
		switch {
		case !runs:
			stopped = append(stopped, p)
		case i.Starting():
			return nil, nil, nil, fmt.Errorf("cluster %s is already being started by process %d; wait for it", p.Name, i.Process.PID)
		default:
			running = append(running, p)
		}
	}
	return stopped, running, unread, nil
}

// upFleet starts the clusters of a fleet that do not run, in one process.
func upFleet(cmd *cobra.Command, o Options, asked local.Settings, clusters int) error {
	if err := local.Mergeable(flag(cmd, "kubeconfig")); err != nil {
		return err
	}
	all, asked, err := fleet(cmd, clusters, asked)
	if err != nil {
		return err
	}
	stopped, ready, unread, err := stoppedOf(all, asked)
	if err != nil {
		return err
	}
	for _, p := range ready {
		if err := p.Differ(asked); err != nil {
			return err
		}
	}
	out, began := cmd.OutOrStdout(), time.Now()
	if len(ready) > 0 {
		_, _ = fmt.Fprintf(out, "%s: already running\n", count(ready))
	}
	for _, u := range unread {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "cluster %s did not start: %v\n", u.Profile.Name, u.Err)
	}
	failed := notStarted(unread)
	if len(stopped) > 0 {
		if err := startable(cmd, stopped, asked, clusters); err != nil {
			return err
		}
		results, err := startFleet(cmd, stopped, asked, clusters)
		if cmd.Context().Err() != nil {
			return fmt.Errorf("%w: %s stopped again", context.Cause(cmd.Context()), count(stopped))
		}
		var started []local.Profile
		not := unread
		for _, r := range results {
			if r.Err != nil {
				not = append(not, r)
				if err == nil {
					_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "cluster %s did not start: %v%s\n", r.Profile.Name, r.Err, seeAlso(r.Profile.Log()))
				}
				continue
			}
			started = append(started, r.Profile)
		}
		switch {
		case err != nil:
			return fmt.Errorf("%s did not start: %w%s", count(stopped), err, seeAlso(stopped[0].Log()))
		default:
			failed = notStarted(not)
		}
		if len(started) > 0 {
			_, _ = fmt.Fprintf(out, "%s: ready after %v\n", count(started), time.Since(began).Round(time.Millisecond))
		}
		ready = append(ready, started...)
	}
	if len(ready) == 0 {
		return failed
	}
	file, err := local.MergeAll(cmd.Context(), ready, flag(cmd, "kubeconfig"))
	if err != nil {
		return errors.Join(failed, fmt.Errorf("the clusters are running, but %w", err))
	}
	_, _ = fmt.Fprintf(out, "contexts in %s, such as %q\n", file, ready[0].Context())
	return failed
}

// notStarted returns an error that names the clusters that did not start, nil if there are none.
func notStarted(not []local.Started) error {
	if len(not) == 0 {
		return nil
	}
	var all []local.Profile
	for _, s := range not {
		all = append(all, s.Profile)
	}
	return fmt.Errorf("%s did not start", count(all))
}

// count returns the number of clusters and, if they are few, their names.
func count(all []local.Profile) string {
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	switch {
	case len(all) == 1:
		return "cluster " + names[0]
	case len(all) <= 5:
		return fmt.Sprintf("%d clusters (%s)", len(all), strings.Join(names, ", "))
	}
	return fmt.Sprintf("%d clusters (%s to %s)", len(all), names[0], names[len(names)-1])
}

// startable returns an error for settings or data with which the clusters could not be started.
func startable(cmd *cobra.Command, all []local.Profile, asked local.Settings, clusters int) error {
	for _, p := range all {
		s, err := p.Settle(asked, nil)
		if err != nil {
			return err
		}
		err = errors.Join(p.CheckExpired(s, clusters, time.Now()), checkNoMember(p), checkDataDir(cmd, p), checkCopy(cmd, p), warnOfOtherData(cmd, p))
		if err != nil {
			return err
		}
	}
	return nil
}

// startFleet starts clusters in the background, in one process.
func startFleet(cmd *cobra.Command, all []local.Profile, asked local.Settings, clusters int) ([]local.Started, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := append([]string{"serve", "--report", fmt.Sprintf("--%s=%d", clustersFlag, clusters), "--name=" + asked.Fleet}, settingsArgs(asked)...)
	if acceptsCopy(cmd) {
		args = append(args, "--"+acceptCopy)
	}
	if dir := flag(cmd, "data-dir"); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		args = append(args, "--data-dir="+abs)
	}
	file, err := local.UserKubeconfig(flag(cmd, "kubeconfig")) // a cluster that expires removes its context
	if err != nil {
		return nil, err
	}
	args = append(args, "--kubeconfig="+file)
	return local.StartFleet(cmd.Context(), all, program, args, func(step string) {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s\n", step)
	})
}

// A fleetServer runs clusters in one process.
type fleetServer struct {
	cmd    *cobra.Command
	serve  func(ctx context.Context, s Service) error
	brief  bool // remove each cluster at its end
	o      Options
	starts chan struct{} // has as many elements as clusters are starting
}

// serveFleet runs clusters in this process until ctx is over or all of them have ended. The clusters that run already
// in another process are left out.
func serveFleet(cmd *cobra.Command, o Options, asked local.Settings, clusters int, r local.Reporter, log func(io.Writer) *slog.Logger, brief bool) error {
	all, asked, err := fleet(cmd, clusters, asked)
	if err != nil {
		return err
	}
	for i := range all {
		if brief { // as for a single cluster
			all[i].Default = ""
			if err := mustBeNew(all[i]); err != nil {
				return err
			}
		}
	}
	own, _, unread, err := stoppedOf(all, asked)
	if err != nil {
		return err
	}
	var failed []error
	for _, u := range unread {
		err := fmt.Errorf("cluster %s: %w", u.Profile.Name, u.Err)
		failed = append(failed, err)
		log(cmd.ErrOrStderr()).ErrorContext(cmd.Context(), "the cluster is not started, the others are", "err", err)
	}
	if !brief {
		if err := startable(cmd, own, asked, clusters); err != nil {
			return err
		}
	}
	switch {
	case len(own) == 0 && len(unread) > 0:
		return errors.Join(failed...)
	case len(own) == 0:
		return fmt.Errorf("%s: already running", count(all))
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	if brief {
		input := run.NewGroup(ctx, 0)
		input.Go(func(context.Context) {
			_, _ = io.Copy(io.Discard, cmd.InOrStdin())
			cancel()
		})
	}
	follow, serve := o.Share(len(own), log(cmd.ErrOrStderr()))
	f := &fleetServer{cmd: cmd, serve: serve, brief: brief, o: o, starts: make(chan struct{}, 2*runtime.GOMAXPROCS(0))}
	common := run.NewGroup(ctx, 0)
	common.Go(func(ctx context.Context) { _ = follow(ctx) })
	report := r.Share(len(own))
	var mu sync.Mutex
	group := run.NewGroup(ctx, 0)
	for _, p := range own {
		group.Go(func(ctx context.Context) {
			if err := f.one(ctx, p, asked, report(p.Name), log); err != nil {
				mu.Lock()
				failed = append(failed, fmt.Errorf("cluster %s: %w", p.Name, err))
				mu.Unlock()
			}
		})
	}
	group.Wait()
	cancel()
	common.Wait()
	return errors.Join(failed...)
}

// one runs one cluster until it ends, and removes its run directory and, if it has expired or is brief, all of it.
func (f *fleetServer) one(ctx context.Context, p local.Profile, asked local.Settings, r local.Reporter, log func(io.Writer) *slog.Logger) (err error) {
	defer func() {
		if err == nil {
			err := errors.New("it was stopped before it was ready")
			r.Fail(err) // it has no effect if it was ready
			return
		}
		r.Fail(err)
	}()
	select { // more at the same time would all be ready later
	case f.starts <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	started := sync.OnceFunc(func() { <-f.starts })
	defer started()
	s, err := p.Settle(asked, nil)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.DataDir, 0o700); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	logger := log(f.cmd.ErrOrStderr()).With("cluster", p.Name)
	if !f.brief {
		file, err := os.OpenFile(p.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			defer file.Close()
			logger = log(file)
		}
	}
	ctx, cancel := untilExpired(ctx, s)
	defer cancel()
	ended, err := p.AcceptStop(ctx, cancel)
	if err != nil {
		logger.WarnContext(ctx, "the cluster can only be stopped together with the others of its process", "err", err)
	} else {
		defer ended()
	}
	err = f.serve(ctx, Service{Profile: p, Settings: s, Flags: flagValues(f.cmd, s), Report: r.Notify(started), Log: logger})
	expired := context.Cause(ctx) == errExpired //nolint:errorlint // it is not wrapped
	ctx = context.WithoutCancel(ctx)
	switch {
	case f.brief:
		endErr := endOwn(ctx, f.o, p)
		_, removeErr := p.Remove(ctx)
		return errors.Join(err, endErr, removeErr)
	case expired:
		logger.InfoContext(ctx, "the cluster has expired and is removed with its data", "name", p.Name, "expired", s.Expiry.At)
		return errors.Join(err, removeOwn(ctx, f.o, p, flag(f.cmd, "kubeconfig")))
	}
	return errors.Join(err, endOwn(ctx, f.o, p))
}

// downFleet stops all clusters that were started together with a name, and removes them if purge is set.
func downFleet(cmd *cobra.Command, o Options, purge bool) error {
	prefix := flag(cmd, "name")
	home, err := local.NewProfile("", "")
	if err != nil {
		return err
	}
	found, err := home.Clusters()
	var ended []local.Profile
	var unread []error // about clusters that may belong to the others
	var mu sync.Mutex
	var failed []error
	ending := run.NewGroup(cmd.Context(), endsAtOnce)
	for _, c := range found {
		of, _, fleetErr := c.Fleet()
		if !c.Running && !purge {
			continue
		}
		if fleetErr != nil && local.InFleet(c.Name, prefix) {
			unread = append(unread, fmt.Errorf("cluster %s was left as it is: %w", c.Name, fleetErr))
		}
		if fleetErr != nil || of != prefix {
			continue
		}
		ended = append(ended, c.Profile)
		ending.Go(func(ctx context.Context) {
			err := downOne(ctx, o, c, purge)
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, err)
		})
	}
	ending.Wait()
	if purge && len(ended) > 0 {
		failed = append(failed, local.ForgetAll(cmd.Context(), ended, flag(cmd, "kubeconfig")))
	}
	if err := errors.Join(failed...); err != nil {
		return errors.Join(append(unread, err)...)
	}
	slices.SortFunc(ended, func(a, b local.Profile) int { // NAME-2 before NAME-10
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	switch {
	case len(ended) == 0 && err != nil:
		return errors.Join(append(unread, err)...)
	case len(ended) == 0 && len(unread) > 0:
	case len(ended) == 0:
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "no cluster of %s is running\n", prefix)
	case purge:
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s: stopped, data removed\n", count(ended))
	default:
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s: stopped\n", count(ended))
	}
	return errors.Join(unread...)
}

// endsAtOnce is how many clusters are stopped at the same time: their ends mostly wait for the disk.
const endsAtOnce = 16

// downOne stops one cluster, and removes its data if purge is set.
func downOne(ctx context.Context, o Options, c local.Found, purge bool) error {
	if c.Running {
		if err := end(ctx, o, c.Profile, c.Instance); err != nil {
			return err
		}
	}
	if !purge {
		return nil
	}
	_, err := c.Remove(ctx)
	return err
}
