package rollouts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/show"
	"github.com/sampan-io/sampan/cli/waiting"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/plural"
	"github.com/sampan-io/sampan/rollout"
)

type rollingUpdate struct {
	*session.Globals
	in                    session.Input
	image, container      string
	pullPolicy            string
	surge, unavailable    string
	updatePeriod          time.Duration
	pollInterval          time.Duration
	timeout               time.Duration
	minReady              int32
	canaries              int32
	key, cleanup          string
	rollback, promote     bool
	replacePods, autoUndo bool
	dryRun                session.DryRun
	validate              session.Strictness

	limits bool             // one of them was said
	quiet  bool             // only the result is printed
	wrote  waiting.Listener // may be nil
}

// RollingUpdate returns the verb rolling-update.
func RollingUpdate(g *session.Globals) *cobra.Command {
	u := &rollingUpdate{Globals: g}
	cmd := &cobra.Command{
		Use:     "rolling-update OLD [NEW] --image=IMAGE | -f NEW_SPEC | --rollback | --promote | --replace-pods",
		Aliases: []string{"rollingupdate"},
		Short:   "Perform a rolling update of a replication controller",
		Long: "Replace the pods of a replication controller a few at a time, keeping enough of them ready. With one name the updated\n" +
			"controller keeps that name; with two names, or with -f, the new controller has the new name. With --replace-pods each\n" +
			"pod is replaced without changing the template, and at most one is missing at a time.\n\n" +
			"The command blocks until the update is complete or the canaries are ready. An update that was interrupted, killed or\n" +
			"timed out is resumed by the same command, continued with --promote and undone with --rollback. If two commands update\n" +
			"the same controller, the second one reports the first and exits, unless the first is dead.\n\n" +
			"With --wait=DEGREE the command also waits for the controller after the update: --wait=serving, --wait=settled=1m. With\n" +
			"--wait -o json it prints a stream of events, one JSON object per line, the last with \"type\":\"result\".\n\n" +
			"Exit codes: 0 done, 1 usage error, no connection or another update is running, 2 the new pods cannot become ready, 3\n" +
			"no progress, 4 the controller does not exist, 5 failed and rolled back (--auto-rollback).",
		Example: "  sampan rolling-update web --image=shop/web:v2\n" +
			"  sampan rolling-update web --image=shop/web:v2 --canaries=1 && sampan rolling-update web --promote\n" +
			"  sampan rolling-update web --rollback\n" +
			"  sampan rolling-update web --replace-pods",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			for i, arg := range args {
				var err error
				if args[i], err = controllerName(arg); err != nil {
					return exit.Usage(rollingUpdateName, err)
				}
			}
			u.limits = cmd.Flags().Changed("max-surge") || cmd.Flags().Changed("max-unavailable")
			return u.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	u.PrintFlags(f)
	u.in.FileFlags(f)
	f.StringVar(&u.image, "image", "", "image for the new pods")
	f.StringVar(&u.container, "container", "", "container that gets the image; required if the pod has several")
	f.StringVar(&u.pullPolicy, "image-pull-policy", "", "image pull policy: Always, IfNotPresent or Never (default: unchanged)")
	f.StringVar(&u.surge, "max-surge", "1", "maximum number or percentage of pods above the desired number; none with --replace-pods")
	f.StringVar(&u.unavailable, "max-unavailable", "0", "maximum number or percentage of unavailable pods; one with --replace-pods")
	f.Int32Var(&u.minReady, "min-ready-seconds", 0, "seconds that a new pod must be ready before it counts as available")
	f.Int32Var(&u.canaries, "canaries", 0, "stop after this many new pods, until --promote or --rollback; 0 means no canaries")
	f.BoolVar(&u.autoUndo, "auto-rollback", false, "roll back if the new pods cannot become ready or there is no progress within --timeout")
	f.StringVar(&u.cleanup, "cleanup", "", "what to do with the old controller: delete (default with two names), rename (default with one name) or preserve")
	f.DurationVar(&u.updatePeriod, "update-period", time.Minute, "pause between adding new pods and removing old ones; canaries do not wait for it before they hold")
	f.DurationVar(&u.pollInterval, "poll-interval", 3*time.Second, "ignored; accepted for compatibility with old scripts")
	f.DurationVar(&u.timeout, "timeout", 5*time.Minute, "how long to wait without any progress; 0 means no limit")
	f.StringVar(&u.key, "deployment-label-key", rollout.DefaultKey, "label that distinguishes new pods from old ones")
	f.BoolVar(&u.rollback, "rollback", false, "roll back the update in progress")
	f.BoolVar(&u.promote, "promote", false, "continue the update in progress")
	f.BoolVar(&u.replacePods, "replace-pods", false, "replace each pod without changing the template")
	u.validate.AddFlag(cmd)
	u.dryRun.AddFlag(cmd)
	waiting.AddFlags(g, cmd, &u.wrote, waiting.Options{Done: "rolling updated", Steps: true, Quiet: &u.quiet})
	return cmd
}

// controllerName returns the name of a replication controller that is given as NAME or as TYPE/NAME.
func controllerName(arg string) (string, error) {
	kind, name, typed := strings.Cut(arg, "/")
	if !typed {
		return arg, nil
	}
	switch kind = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(kind), "."), ".v1"); {
	case kind != "rc" && kind != "replicationcontroller" && kind != "replicationcontrollers":
		return "", fmt.Errorf("%s: must be a replication controller: NAME, rc/NAME or replicationcontroller/NAME. "+
			"Deployments, StatefulSets and DaemonSets roll out changes of their template themselves", arg)
	case name == "" || strings.Contains(name, "/"):
		return "", fmt.Errorf("%s: must be rc/NAME", arg)
	}
	return name, nil
}

const rollingUpdateName = "sampan rolling-update"

func (u *rollingUpdate) run(ctx context.Context, args []string) error {
	f, err := u.Format()
	if err != nil {
		return err
	}
	if err := u.check(); err != nil {
		return exit.Usage(rollingUpdateName, err)
	}
	u.Within(u.timeout)
	s, err := u.Connect()
	if err != nil {
		return err
	}
	c, err := s.Typed()
	if err != nil {
		return err
	}
	opts, err := u.options(ctx, s, c, args)
	if err != nil {
		return err
	}
	if !f.IsTable() && !u.quiet {
		opts.Out = u.Err // the standard output is for the object alone
	}
	up, err := rollout.New(opts)
	if err != nil {
		return exit.Usage(rollingUpdateName, err)
	}
	if u.dryRun != "none" {
		return u.preview(ctx, c, f, up, args[0])
	}
	out, err := up.Run(ctx)
	var before *rollout.DoneError
	if errors.As(err, &before) { // the last answer of an earlier run was lost
		out, err = rollout.Outcome{Name: before.Name}, nil
	}
	if err != nil {
		return u.ending(ctx, s, args[0], err)
	}
	if out.Deleted != "" {
		_, err = fmt.Fprintf(opts.Out, "replicationcontroller/%s deleted\n", out.Deleted)
		return err
	}
	if !f.IsTable() || u.wrote != nil {
		rc, err := client.ReplicationControllers.Get(ctx, c, s.Namespace, out.Name)
		if err != nil {
			return err
		}
		if out.Canaries == 0 { // they are to be looked at first
			u.wrote.Notify(resource.MappingOf(client.ReplicationControllers), rc)
		}
		if !f.IsTable() {
			if out.Canaries > 0 {
				u.canariesReady(s, u.Err, args[0], out)
			}
			return u.print(f, rc)
		}
	}
	switch {
	case before != nil:
		_, err = fmt.Fprintf(u.Out, "replicationcontroller/%s was already %s\n", before.Name, before.What)
	case out.Unchanged && u.replacePods:
		_, err = fmt.Fprintf(u.Out, "replicationcontroller/%s unchanged: it has no pods to replace\n", out.Name)
	case out.Unchanged && u.image != "":
		_, err = fmt.Fprintf(u.Out, "replicationcontroller/%s unchanged: it already has the image %s\n", out.Name, u.image)
	case out.Unchanged:
		_, err = fmt.Fprintf(u.Out, "replicationcontroller/%s unchanged: it already has the wanted template\n", out.Name)
	case out.Canaries > 0:
		u.canariesReady(s, u.Out, args[0], out)
	case u.replacePods:
		_, err = fmt.Fprintf(u.Out, "replicationcontroller/%s pods replaced\n", out.Name)
	case out.Name != args[0]:
		_, err = fmt.Fprintf(u.Out, "replicationcontroller/%s rolling updated to %q\n", args[0], out.Name)
	default:
		_, err = fmt.Fprintf(u.Out, "replicationcontroller/%s rolling updated\n", args[0])
	}
	return err
}

// check checks the flags that package rollout does not check.
func (u *rollingUpdate) check() error {
	ways := 0
	for _, chosen := range []bool{u.image != "", u.in.Given(), u.rollback, u.promote, u.replacePods} {
		if chosen {
			ways++
		}
	}
	switch {
	case ways == 0:
		return errors.New("must specify one of --image, -f, --rollback, --promote and --replace-pods")
	case ways > 1:
		return errors.New("only one of --image, -f, --rollback, --promote and --replace-pods may be specified")
	case u.key == "":
		return errors.New("--deployment-label-key must not be empty")
	case u.minReady < 0:
		return errors.New("--min-ready-seconds must not be negative")
	case u.canaries < 0:
		return errors.New("--canaries must not be negative")
	}
	return nil
}

func (u *rollingUpdate) options(ctx context.Context, s *session.Session, c *client.REST, args []string) (rollout.Options, error) {
	opts := rollout.Options{
		Client: c, Namespace: s.Namespace, Old: args[0],
		Image: u.image, Container: u.container, PullPolicy: corev1.PullPolicy(u.pullPolicy),
		Rollback: u.rollback, Promote: u.promote, ReplacePods: u.replacePods,
		Canaries: u.canaries, AutoRollback: u.autoUndo, Cleanup: rollout.Cleanup(u.cleanup),
		MinReady: time.Duration(u.minReady) * time.Second, Key: u.key,
		UpdatePeriod: u.updatePeriod, Timeout: u.timeout,
		Out:      u.Out,
		Progress: func(why string) { _, _ = fmt.Fprintf(u.Err, "waiting: %s\n", why) },
		Log:      slog.New(slog.DiscardHandler), // the progress reports have what matters to a user
	}
	if u.quiet {
		opts.Out, opts.Progress = nil, nil
	}
	if u.limits || !u.replacePods {
		surge, unavailable := intstr.Parse(u.surge), intstr.Parse(u.unavailable)
		opts.Surge, opts.Unavailable = &surge, &unavailable
	}
	if len(args) == 2 {
		opts.NewName = args[1]
	}
	if !u.in.Given() {
		return opts, nil
	}
	var err error
	if opts.New, err = u.newSpec(ctx, s); err != nil {
		return opts, err
	}
	if opts.NewName != "" && opts.NewName != opts.New.Name {
		return opts, exit.Usage(rollingUpdateName, fmt.Errorf("the name of the new controller is %q in the file, but %q on the command line", opts.New.Name, opts.NewName))
	}
	opts.NewName = ""
	return opts, nil
}

// again returns a command line on the same controller.
func again(s *session.Session, name, flag string) string {
	return "'" + s.Hint("rolling-update", s.Namespace) + " " + name + " " + flag + "'"
}

// canariesReady says how to go on.
func (u *rollingUpdate) canariesReady(s *session.Session, w io.Writer, name string, out rollout.Outcome) {
	_, _ = fmt.Fprintf(w, "replicationcontroller/%s stopped at %d of %s new and ready (%s)\n%s continues, %s rolls back\n",
		name, out.Canaries, plural.Count(out.Desired, "pod"), out.Name, again(s, name, "--promote"), again(s, name, "--rollback"))
}

// ending reports the state after an update that did not complete, and picks the exit code.
func (u *rollingUpdate) ending(ctx context.Context, s *session.Session, name string, err error) error {
	advice := "the same command resumes it, " + again(s, name, "--rollback") + " undoes it"
	switch {
	case u.rollback:
		advice = "the same command resumes it"
	case u.replacePods:
		advice = "the same command resumes it, " + again(s, name, "--rollback") + " leaves the other pods as they are"
	}
	var (
		back   *rollout.RolledBackError
		orphan *rollout.OrphanedError
		late   *rollout.TimeoutError
		failed *rollout.FailedError
		busy   *rollout.BusyError
	)
	switch {
	case errors.As(err, &back):
		return exit.With(exit.RolledBack, err)
	case errors.As(err, &orphan):
		return exit.With(exit.Gone, fmt.Errorf("%w; the same command finishes it under the name %s, %s deletes that", err, orphan.New, again(s, name, "--rollback")))
	case errors.As(err, &late):
		return exit.With(exit.TimedOut, fmt.Errorf("%w; %s", err, advice))
	case errors.As(err, &failed):
		return exit.With(exit.Failed, fmt.Errorf("%w; %s", err, advice))
	case errors.As(err, &busy):
		return fmt.Errorf("%w: wait until it has ended, or interrupt it there", err)
	case ctx.Err() != nil:
		_, _ = fmt.Fprintf(u.Err, "interrupted: the update is stopped; %s\n", advice)
	}
	return err
}

func (u *rollingUpdate) newSpec(ctx context.Context, s *session.Session) (*corev1.ReplicationController, error) {
	infos, err := s.Infos(ctx, u.in, nil)
	if err != nil {
		return nil, err
	}
	if len(infos) == 0 {
		return nil, errors.New("no objects passed to rolling-update")
	}
	if len(infos) != 1 || infos[0].Mapping.GroupVersionResource != client.ReplicationControllers.GroupVersionResource {
		return nil, errors.New("the file must contain exactly one ReplicationController and no other object")
	}
	rc := &corev1.ReplicationController{}
	if err := s.Check(ctx, u.validate, infos[0]); err != nil {
		return nil, err
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(infos[0].Object.Object, rc, u.validate != metav1.FieldValidationIgnore)
	switch {
	case err != nil && runtime.IsStrictDecodingError(err) && u.validate == metav1.FieldValidationWarn:
		s.Warn(err.Error())
	case err != nil:
		return nil, fmt.Errorf("%s: %w", infos[0].Source, err)
	}
	if infos[0].Namespace != s.Namespace {
		return nil, fmt.Errorf("%s: the controller is in namespace %q, but the one to update is in %q", infos[0].Source, infos[0].Namespace, s.Namespace)
	}
	return rc, nil
}

// preview shows what would be made and changes nothing.
func (u *rollingUpdate) preview(ctx context.Context, c *client.REST, f show.Format, up *rollout.Updater, old string) error {
	rc, undoes, err := up.Target(ctx)
	if err != nil {
		return err
	}
	if undoes != "" {
		out := u.Out
		if !f.IsTable() {
			out = u.Err // the standard output is for the object alone
		}
		_, _ = fmt.Fprintf(out, "Found existing update in progress (%s) to something else, it would be undone first.\n", undoes)
	}
	if u.dryRun == "server" && (u.image != "" || u.in.Given()) {
		_, err := c.Create(ctx, client.ReplicationControllers.GroupVersionResource, rc.Namespace, "", rc, metav1.CreateOptions{DryRun: u.dryRun.Option()}, "")
		if err != nil && !apierrors.IsAlreadyExists(err) { // it does when the update is under way
			return err
		}
	}
	switch {
	case !f.IsTable():
		return u.print(f, rc)
	case u.rollback:
		_, err = fmt.Fprintf(u.Out, "Rolling back to:\n%s\n", rc.Name)
	case u.replacePods:
		_, err = fmt.Fprintf(u.Out, "Replacing %s of:\n%s\n", plural.Count(rc.Status.Replicas, "pod"), rc.Name)
	default: // kubectl's words
		_, err = fmt.Fprintf(u.Out, "Rolling from:\n%s\nTo:\n%s\n", old, rc.Name)
	}
	return err
}

func (u *rollingUpdate) print(f show.Format, rc *corev1.ReplicationController) error {
	rc = rc.DeepCopy()
	rc.SetGroupVersionKind(client.ReplicationControllers.GVK())
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(rc)
	if err != nil {
		return fmt.Errorf("printing %s: %w", rc.Name, err)
	}
	mapping := resource.MappingOf(client.ReplicationControllers)
	return f.Print(u.Out, mapping, &unstructured.Unstructured{Object: m})
}
