package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/manifest"
	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client"
)

// exitOurs is a failure that is not the command's in the container, as with docker run.
const exitOurs = 125

// runJob makes a Job and stands for it: its output, its exit code.
type runJob struct {
	create // how it is made

	image, pullPolicy string
	env               []string
	labels            string
	account           string
	retries           int32
	remove            bool
	timeout           time.Duration
	patience

	events *eventStream
}

func runJobCommand(g *Globals) *cobra.Command {
	r := &runJob{create: create{Globals: g}}
	cmd := &cobra.Command{
		Use:   "job NAME --image=IMAGE [-- COMMAND [ARGUMENT…]] | job -f FILE",
		Short: "Run a command as a Job: print its output, exit with its exit code",
		Long: "Create a Job, print what its containers write as they write it, all of it however soon it ends, and exit with the\n" +
			"exit code of the container. A Job made from flags runs once: --retries lets it be tried again.\n\n" +
			"Exit code 125 is a failure that is not the command's: the Job could not be created or watched, its image could not be\n" +
			"pulled, its container could not be started, or --timeout came first.\n\n" +
			"Ctrl-C detaches: the Job goes on, and what is said then is how to come back to it (exit code 130). With --rm the\n" +
			"Job is deleted, whether it has ended or was interrupted. A second Ctrl-C ends the command at once.",
		Example: "  sampan run job hello --image=busybox --rm -- echo hello\n  sampan run job -f build-job.yaml --timeout=10m",
		RunE: func(cmd *cobra.Command, args []string) error {
			err := r.run(cmd, args)
			var exit *exitError
			if err == nil || errors.As(err, &exit) && exit.err == nil {
				return err
			}
			return &exitError{exitOurs, err}
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &exitError{exitOurs, &usageError{cmd.CommandPath(), flagError(err)}}
	})
	f := cmd.Flags()
	r.in.fileFlag(f)
	f.StringVar(&r.image, "image", "", "image of the container")
	f.StringVar(&r.pullPolicy, "image-pull-policy", "", "when to pull it: Always, IfNotPresent, Never; the server decides if it is empty")
	f.StringArrayVar(&r.env, "env", nil, "NAME=VALUE in the environment of the container")
	f.StringVarP(&r.labels, "labels", "l", "", "labels of the Job and its pods, separated by commas")
	f.StringVar(&r.account, "service-account", "", "service account that it runs as")
	f.Int32Var(&r.retries, "retries", 0, "how often it is tried again after a failure")
	f.BoolVar(&r.remove, "rm", false, "delete the Job in the end, and when interrupted")
	f.DurationVar(&r.timeout, "timeout", 0, "how long to wait for its end; 0 waits for ever")
	f.StringVar(&r.fail, "fail", "grace", "what a likely failure (image pull) does: now ends the wait, grace ends it if it lasts, never")
	f.DurationVar(&r.grace, "grace", await.DefaultGrace, "how long a likely failure may last")
	f.BoolVarP(&r.quiet, "quiet", "q", false, "print nothing but the output of the containers")
	r.validate.flag(cmd)
	r.manager, r.dryRun = "kubectl-create", "none"
	return cmd
}

// command reads the command line: the Job that it describes, nil if it is in files.
func (r *runJob) command(cmd *cobra.Command, args []string) (*batchv1.Job, error) {
	dash := cmd.ArgsLenAtDash()
	before := args
	if dash >= 0 {
		before = args[:dash]
	}
	switch {
	case r.timeout < 0:
		return nil, fmt.Errorf("--timeout=%v: want 0 or more", r.timeout)
	case r.in.given() && (len(args) > 0 || r.image != "" || len(r.env) > 0 || r.labels != "" || r.pullPolicy != "" || r.account != "" || cmd.Flags().Changed("retries")):
		return nil, errors.New("with -f the Job is in the file: a NAME, a command and flags that describe a Job cannot be given as well")
	case r.in.given():
		return nil, nil //nolint:nilnil // the file says it
	case len(before) != 1:
		return nil, fmt.Errorf("exactly one NAME is required, got %d; the command goes behind --", len(before))
	case r.image == "":
		return nil, errors.New("--image is required")
	case strings.ContainsAny(r.image, " \t\n"):
		return nil, fmt.Errorf("invalid image name %q: invalid reference format", r.image)
	case r.retries < 0:
		return nil, fmt.Errorf("--retries=%d: want 0 or more", r.retries)
	}
	name := args[0]
	c := corev1.Container{Name: name, Image: r.image, Command: args[1:]}
	for _, e := range r.env {
		key, value, ok := strings.Cut(e, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("invalid env: %s, want NAME=VALUE", e)
		}
		c.Env = append(c.Env, corev1.EnvVar{Name: key, Value: value})
	}
	switch p := corev1.PullPolicy(r.pullPolicy); p {
	case "", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
		c.ImagePullPolicy = p
	default:
		return nil, fmt.Errorf("invalid image pull policy: %s, valid values are: Always, IfNotPresent, Never", p)
	}
	var labels map[string]string
	if r.labels != "" {
		var err error
		if labels, err = manifest.Pairs("label spec", strings.Split(r.labels, ",")); err != nil {
			return nil, err
		}
	}
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: batchv1.JobSpec{
			BackoffLimit: &r.retries,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(labels)},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{c}, RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: r.account,
				},
			},
		},
	}, nil
}

func (r *runJob) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	job, err := r.command(cmd, args)
	if err == nil {
		err = r.apply(&await.Request{})
	}
	if err == nil {
		r.events, err = r.eventsOrText()
	}
	if err != nil {
		return &usageError{cmd.CommandPath(), err}
	}
	s, err := r.connect()
	if err != nil {
		return err
	}
	made, err := r.make(ctx, s, job)
	if err != nil {
		return err
	}
	ref := await.Ref{Resource: client.Jobs.GroupVersionResource, Kind: client.Jobs.Kind, Namespace: made.Namespace, Name: made.Name, UID: made.UID}
	if r.events != nil {
		r.events.send(progress.Event{Type: progress.TypeWritten, Operation: "created", Object: progress.ObjectOf(ref)})
	}
	end, code, err := r.attend(ctx, s, made)
	if ctx.Err() != nil {
		code, err = exitInterrupted, nil
	}
	err = errors.Join(err, r.leave(ctx, s, made, err != nil))
	if err != nil && code != exitInterrupted {
		code = exitOurs
	}
	if r.events != nil {
		r.events.ended(end, code, err)
	}
	if err == nil && code == exitDone {
		return nil
	}
	return &exitError{code, err}
}

// make creates the Job and returns what the server made of it.
func (r *runJob) make(ctx context.Context, s *session, job *batchv1.Job) (*batchv1.Job, error) {
	info := resource.Info{Mapping: mappingOf(client.Jobs), Namespace: s.namespace}
	if job != nil {
		u, err := resource.Unstructured(job)
		if err != nil {
			return nil, err
		}
		u.SetNamespace(s.namespace)
		info.Name, info.Object, info.Source = u.GetName(), u, info.Mapping.Called(u.GetName())
	} else {
		infos, err := s.infos(ctx, r.in, nil)
		if err != nil {
			return nil, err
		}
		if len(infos) != 1 || infos[0].Mapping.GroupVersionResource != client.Jobs.GroupVersionResource {
			return nil, errors.New("the files must hold one Job and nothing else")
		}
		info = infos[0]
		if err := s.check(ctx, r.validate, info); err != nil {
			return nil, err
		}
	}
	got, err := s.Create(ctx, info.Mapping.GroupVersionResource, info.Namespace, "", info.Object,
		metav1.CreateOptions{FieldValidation: string(r.validate), FieldManager: r.manager}, "")
	if err != nil {
		return nil, info.Fault(err)
	}
	u, ok := got.(*unstructured.Unstructured)
	if !ok {
		return nil, notAnObject(info, got)
	}
	made := &batchv1.Job{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, made); err != nil {
		return nil, notAnObject(info, got)
	}
	return made, nil
}

// attend prints the Job's output until it has ended, and returns its exit code, or
// what of ours went wrong.
func (r *runJob) attend(ctx context.Context, s *session, job *batchv1.Job) (ending, int, error) {
	c, err := s.typed()
	if err != nil {
		return ending{}, exitOurs, err
	}
	e := ending{words: progress.WordsOf(await.Complete), request: await.Request{
		For: await.Complete, Timeout: r.timeout,
		Targets: []await.Target{{
			Resource: client.Jobs.GroupVersionResource, Kind: client.Jobs.Kind, Namespace: job.Namespace, Name: job.Name,
			UID: job.UID, Generation: job.Generation, ResourceVersion: job.ResourceVersion,
		}},
	}}
	if err := r.apply(&e.request); err != nil {
		return e, exitOurs, err
	}
	told := newTelling(ctx, s.Globals, waitTalk{quiet: r.quiet, silent: true, calm: true, events: r.events}, e.words, r.timeout)
	spec := job.Spec.Template.Spec
	one := len(spec.Containers)+len(spec.InitContainers) == 1
	output := &jobOutput{told: told, plain: one && r.events == nil}
	logs := newPodLogs(ctx, c, output.of, told.note)
	logs.ready = true
	logs.want(job.Namespace, job.UID)
	e.out, e.err = await.Until(ctx, c, e.request, func(p await.Progress) { told.hear(p, e.words, e.request) })
	readErr := logs.finish(ctx)
	told.close([]ending{e})
	switch {
	case ctx.Err() != nil:
		return e, exitInterrupted, nil
	case e.err == nil && e.out.Result == await.AllDone:
		return e, exitDone, readErr
	case e.err == nil && e.out.Result == await.SomeFailed:
		code, known, err := jobExitCode(ctx, c, job)
		if known || err != nil {
			return e, code, errors.Join(err, readErr)
		}
	}
	return e, exitOurs, e.error(waitTalk{})
}

// jobOutput gives the output of a Job's containers to the user.
type jobOutput struct {
	told  *telling
	plain bool // as it is; otherwise line by line, with the container before it

	mu sync.Mutex // one container at a time
}

func (o *jobOutput) of(src logSource) io.WriteCloser {
	if !o.plain {
		return o.told.aLogOf(src)
	}
	return &rawLog{o}
}

type rawLog struct{ *jobOutput }

// Write implements io.Writer.
func (o *rawLog) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told.hush() // the output may leave the cursor anywhere
	return o.told.g.Out.Write(b)
}

// Close implements io.Closer.
func (o *rawLog) Close() error { return nil }

// jobExitCode returns the exit code of the container that failed a Job, if one did:
// that of the pod that ended last.
func jobExitCode(ctx context.Context, c client.Interface, job *batchv1.Job) (code int, known bool, err error) {
	now, err := client.Jobs.Get(ctx, c, job.Namespace, job.Name)
	if err != nil {
		return exitOurs, false, err
	}
	failed := slices.ContainsFunc(now.Status.Conditions, func(c batchv1.JobCondition) bool {
		// The second is the first one's announcement: the decision has been made.
		return (c.Type == batchv1.JobFailed || c.Type == batchv1.JobFailureTarget) && c.Status == corev1.ConditionTrue && c.Reason != batchv1.JobReasonDeadlineExceeded
	})
	if !failed || now.UID != job.UID {
		return exitOurs, false, nil // it has not ended by itself
	}
	pods, _, err := client.Pods.List(ctx, c, job.Namespace, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(now.Spec.Selector)})
	if err != nil {
		return exitOurs, false, err
	}
	var last time.Time
	for _, p := range pods {
		if !metav1.IsControlledBy(p, now) {
			continue
		}
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			t := s.State.Terminated
			if t == nil {
				t = s.LastTerminationState.Terminated
			}
			if t == nil || t.ExitCode == 0 || notStarted(t.Reason) || t.FinishedAt.Time.Before(last) {
				continue
			}
			code, known, last = int(t.ExitCode), true, t.FinishedAt.Time
		}
	}
	return code, known, nil
}

// notStarted reports whether a container has ended without having begun, so that its
// exit code is one that the runtime made up.
func notStarted(reason string) bool {
	return reason == "StartError" || reason == "ContainerCannotRun" || reason == "ContainerStatusUnknown"
}

// leave deletes the Job or says what goes on.
func (r *runJob) leave(ctx context.Context, s *session, job *batchv1.Job, failed bool) error {
	name := "job/" + job.Name
	where := ""
	if job.Namespace != "default" {
		where = " -n " + job.Namespace
	}
	interrupted := ctx.Err() != nil
	if !r.remove {
		switch {
		case interrupted:
			_, _ = fmt.Fprintf(r.Err, "interrupted: %s goes on without this command; 'sampan logs%s %s -f' shows its output, 'sampan delete%s %s' ends it\n", name, where, name, where, name)
		case failed && !r.quiet:
			_, _ = fmt.Fprintf(r.Err, "%s is still there; 'sampan delete%s %s' removes it\n", name, where, name)
		}
		return nil
	}
	const limit = 10 * time.Second // for one request
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	background := metav1.DeletePropagationBackground
	err := s.Delete(ctx, client.Jobs.GroupVersionResource, job.Namespace, job.Name, metav1.DeleteOptions{
		PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &job.UID},
	})
	if isGone(err) {
		err = nil // somebody was faster
	}
	if err == nil && interrupted {
		_, _ = fmt.Fprintf(r.Err, "interrupted: %s is deleted\n", name)
	}
	return err
}
