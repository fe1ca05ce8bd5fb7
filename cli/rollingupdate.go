package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/rollout"
)

type rollingUpdate struct {
	*Globals
	in                 input
	image, container   string
	pullPolicy         string
	surge, unavailable string
	updatePeriod       time.Duration
	pollInterval       time.Duration
	timeout            time.Duration
	key                string
	rollback           bool
	dryRun             dryRun
	validate           string
}

func rollingUpdateCommand(g *Globals) *cobra.Command {
	u := &rollingUpdate{Globals: g}
	cmd := &cobra.Command{
		Use:     "rolling-update OLD [NEW] --image=IMAGE | -f NEW_SPEC | --rollback",
		Aliases: []string{"rollingupdate"},
		Short:   "Replace the pods of a replication controller, a few at a time",
		Long: "Replace the pods of a replication controller by others, a few at a time, so that enough of them are ready all\n" +
			"the time. With one name the controller keeps it; with two, or -f, the new one has the new name.\n\n" +
			"It blocks until the update is complete. Interrupted, killed or timed out, it is resumed by running the same\n" +
			"command again, and undone with --rollback.\n\n" +
			"Exit codes: 0 done, 1 wrong use or no connection, 2 the new pods cannot become ready, 3 no progress, 4 no such controller.",
		Example: "  sampan rolling-update web --image=shop/web:v2\n  sampan rolling-update web --rollback",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return u.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	u.in.fileFlag(f)
	f.StringVar(&u.image, "image", "", "image for the new pods")
	f.StringVar(&u.container, "container", "", "which container gets the image; needed where there are several")
	f.StringVar(&u.pullPolicy, "image-pull-policy", "", "Always, IfNotPresent or Never; empty leaves it as it is")
	f.StringVar(&u.surge, "max-surge", "1", "how many pods more than desired there may be, a number or a percentage")
	f.StringVar(&u.unavailable, "max-unavailable", "0", "how many pods fewer than desired may be ready, a number or a percentage")
	f.DurationVar(&u.updatePeriod, "update-period", time.Minute, "pause between adding new pods and removing old ones")
	f.DurationVar(&u.pollInterval, "poll-interval", 3*time.Second, "accepted for old scripts; nothing is polled")
	f.DurationVar(&u.timeout, "timeout", 5*time.Minute, "how long to go on without any progress; 0 means for ever")
	f.StringVar(&u.key, "deployment-label-key", rollout.DefaultKey, "label that tells old pods from new")
	f.BoolVar(&u.rollback, "rollback", false, "undo the update that is under way")
	f.StringVar(&u.validate, "validate", "strict", "accepted for old scripts")
	u.dryRun.flag(cmd)
	return cmd
}

func (u *rollingUpdate) run(ctx context.Context, args []string) error {
	f, err := formatOf(u.Output)
	if err != nil {
		return err
	}
	ways := 0
	for _, chosen := range []bool{u.image != "", len(u.in.files) > 0, u.rollback} {
		if chosen {
			ways++
		}
	}
	if ways != 1 {
		return &usageError{"sampan rolling-update", errors.New("say what to update to: one of --image, -f and --rollback")}
	}
	s, err := u.connect()
	if err != nil {
		return err
	}
	c, err := s.typed()
	if err != nil {
		return err
	}
	surge, unavailable := intstr.Parse(u.surge), intstr.Parse(u.unavailable)
	opts := rollout.Options{
		Client: c, Namespace: s.namespace, Old: args[0],
		Image: u.image, Container: u.container, PullPolicy: corev1.PullPolicy(u.pullPolicy), Rollback: u.rollback,
		Surge: &surge, Unavailable: &unavailable, Key: u.key,
		UpdatePeriod: u.updatePeriod, Timeout: u.timeout,
		Out:      u.Out,
		Progress: func(why string) { _, _ = fmt.Fprintf(u.Err, "waiting: %s\n", why) },
	}
	if !f.table() {
		opts.Out = u.Err // the standard output is for the object alone
	}
	if len(args) == 2 {
		opts.NewName = args[1]
	}
	if len(u.in.files) > 0 {
		if opts.New, err = u.newSpec(ctx, s); err != nil {
			return err
		}
		if opts.NewName != "" && opts.NewName != opts.New.Name {
			return &usageError{"sampan rolling-update", fmt.Errorf("the file names the new controller %q, the command line %q", opts.New.Name, opts.NewName)}
		}
		opts.NewName = ""
	}
	up, err := rollout.New(opts)
	if err != nil {
		return &usageError{"sampan rolling-update", err}
	}
	if u.dryRun != "none" {
		return u.preview(ctx, f, up)
	}
	name := args[0]
	if err := up.Run(ctx); err != nil {
		return u.ending(ctx, name, err)
	}
	final := name
	switch {
	case opts.New != nil:
		final = opts.New.Name
	case opts.NewName != "" && !u.rollback:
		final = opts.NewName
	}
	if !f.table() {
		rc, err := client.ReplicationControllers.Get(ctx, c, s.namespace, final)
		if err != nil {
			return err
		}
		return u.print(f, rc)
	}
	to := ""
	if final != name {
		to = fmt.Sprintf(" to %q", final)
	}
	_, err = fmt.Fprintf(u.Out, "replicationcontroller/%s rolling updated%s\n", name, to)
	return err
}

// ending says what an update that did not complete left, and picks the exit code.
func (u *rollingUpdate) ending(ctx context.Context, name string, err error) error {
	const advice = "the same command resumes it, 'sampan rolling-update %s --rollback' undoes it"
	var (
		late   *rollout.TimeoutError
		failed *rollout.FailedError
	)
	switch {
	case errors.As(err, &late):
		return &exitError{exitTimedOut, fmt.Errorf("%w; "+advice, err, name)}
	case errors.As(err, &failed):
		return &exitError{exitFailed, fmt.Errorf("%w; "+advice, err, name)}
	case ctx.Err() != nil:
		_, _ = fmt.Fprintf(u.Err, "interrupted: the update is where it was; "+advice+"\n", name)
	}
	return err
}

func (u *rollingUpdate) newSpec(ctx context.Context, s *session) (*corev1.ReplicationController, error) {
	infos, err := s.infos(ctx, u.in, nil)
	if err != nil {
		return nil, err
	}
	if len(infos) != 1 || infos[0].Mapping.GroupVersionResource != client.ReplicationControllers.GroupVersionResource {
		return nil, errors.New("the file must hold one ReplicationController and nothing else")
	}
	rc := &corev1.ReplicationController{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(infos[0].Object.Object, rc, true); err != nil {
		return nil, fmt.Errorf("%s: %w", infos[0].Source, err)
	}
	if infos[0].Namespace != s.namespace {
		return nil, fmt.Errorf("%s: the controller is in namespace %q, the one to update in %q", infos[0].Source, infos[0].Namespace, s.namespace)
	}
	return rc, nil
}

// preview shows what would be made and changes nothing.
func (u *rollingUpdate) preview(ctx context.Context, f format, up *rollout.Updater) error {
	rc, err := up.Target(ctx)
	if err != nil {
		return err
	}
	if !f.table() {
		return u.print(f, rc)
	}
	verb := "be updated by way of"
	if u.rollback {
		verb = "be rolled back to"
	}
	_, err = fmt.Fprintf(u.Out, "would %s replicationcontroller/%s (dry run)\n", verb, rc.Name)
	return err
}

func (u *rollingUpdate) print(f format, rc *corev1.ReplicationController) error {
	rc = rc.DeepCopy()
	rc.SetGroupVersionKind(client.ReplicationControllers.GVK())
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(rc)
	if err != nil {
		return fmt.Errorf("printing %s: %w", rc.Name, err)
	}
	mapping := mappingOf(client.ReplicationControllers)
	return f.print(u.Out, mapping, &unstructured.Unstructured{Object: m})
}
