package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/manifest"
	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/waiting"
	"github.com/sampan-io/sampan/client"
)

// runJob makes a Job and stands for it: its output, its exit code.
type runJob struct {
	*session.Globals
	in       session.Input
	validate session.Strictness
	flags    manifest.JobFlags
	remove   bool
	timeout  time.Duration
	waiting.Patience

	events *waiting.Events
}

// RunJob returns the verb job, which is to stand below run.
func RunJob(g *session.Globals) *cobra.Command {
	r := &runJob{Globals: g}
	cmd := &cobra.Command{
		Use:   "job NAME --image=IMAGE [-- COMMAND [ARGUMENT…]] | job -f FILE",
		Short: "Run a command as a Job: print its output, exit with its exit code",
		Long: "Create a Job, stream the complete output of its containers, and exit with the exit code of the container. A Job made\n" +
			"from flags runs once; --retries allows retries.\n\n" +
			"Exit code 125 means that the command itself did not fail: the Job could not be created or watched, the image could not\n" +
			"be pulled, the container could not be started, or --timeout expired.\n\n" +
			"Ctrl-C detaches (exit code 130): the Job keeps running, and the command prints how to follow it again. With --rm the\n" +
			"Job is deleted when it ends and when the command is interrupted. A second Ctrl-C exits immediately.",
		Example: "  sampan run job hello --image=busybox --rm -- echo hello\n  sampan run job -f build-job.yaml --timeout=10m",
		RunE: func(cmd *cobra.Command, args []string) error {
			err := r.run(cmd, args)
			var ended *exit.Error
			if err == nil || errors.As(err, &ended) && ended.Err == nil {
				return err
			}
			return exit.With(exit.Ours, err)
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.With(exit.Ours, exit.Usage(cmd.CommandPath(), exit.OfFlag(err)))
	})
	f := cmd.Flags()
	r.in.FileFlags(f)
	r.flags.Add(f)
	f.BoolVar(&r.remove, "rm", false, "delete the Job when it ends or the command is interrupted")
	f.DurationVar(&r.timeout, "timeout", 0, "how long to wait until the Job ends; 0 means no limit")
	f.StringVar(&r.Fail, "fail", "grace", "when a likely failure (image pull) ends the wait: now, after the --grace period (grace), or never")
	f.DurationVar(&r.Grace, "grace", await.DefaultGrace, "how long a likely failure may last")
	f.BoolVarP(&r.Quiet, "quiet", "q", false, "print only the output of the containers")
	r.validate.AddFlag(cmd)
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
	case r.in.Given() && (len(args) > 0 || r.flags.Given(cmd.Flags())):
		return nil, errors.New("-f cannot be used with NAME, a command or flags that describe the Job")
	case r.in.Given():
		return nil, nil // the file says it
	case len(before) != 1:
		return nil, fmt.Errorf("exactly one NAME is required, got %d; the command must follow --", len(before))
	}
	return r.flags.Object(args[0], args[1:])
}

func (r *runJob) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	job, err := r.command(cmd, args)
	if err == nil {
		err = r.Apply(&await.Request{})
	}
	if err == nil {
		r.events, err = waiting.EventsOf(r.Globals)
	}
	if err != nil {
		return exit.Usage(cmd.CommandPath(), err)
	}
	r.Within(r.timeout)
	s, err := r.Connect()
	if err != nil {
		return err
	}
	made, err := r.make(ctx, s, job)
	if err != nil {
		return err
	}
	ref := await.Ref{Resource: client.Jobs.GroupVersionResource, Kind: client.Jobs.Kind, Namespace: made.Namespace, Name: made.Name, UID: made.UID}
	if r.events != nil {
		r.events.Send(progress.Event{Type: progress.TypeWritten, Operation: "created", Object: progress.ObjectOf(ref)})
	}
	end, code, err := r.follow(ctx, s, made)
	if ctx.Err() != nil {
		code, err = exit.Interrupted, nil
	}
	err = errors.Join(err, r.leave(ctx, s, made, err != nil))
	if err != nil && code != exit.Interrupted {
		code = exit.Ours
	}
	if r.events != nil {
		r.events.Ended(end, code, err)
	}
	if err == nil && code == exit.Done {
		return nil
	}
	return exit.With(code, err)
}

// make creates the Job and returns the server's version of it.
func (r *runJob) make(ctx context.Context, s *session.Session, job *batchv1.Job) (*batchv1.Job, error) {
	info := resource.Info{Mapping: resource.MappingOf(client.Jobs), Namespace: s.Namespace}
	if job != nil {
		u, err := resource.Unstructured(job)
		if err != nil {
			return nil, err
		}
		u.SetNamespace(s.Namespace)
		info.Name, info.Object, info.Source = u.GetName(), u, info.Mapping.Called(u.GetName())
	} else {
		infos, err := s.Infos(ctx, r.in, nil)
		if err != nil {
			return nil, err
		}
		if len(infos) != 1 || infos[0].Mapping.GroupVersionResource != client.Jobs.GroupVersionResource {
			return nil, errors.New("the files must contain exactly one Job and no other object")
		}
		info = infos[0]
		if err := s.Check(ctx, r.validate, info); err != nil {
			return nil, err
		}
	}
	got, err := s.Create(ctx, info.Mapping.GroupVersionResource, info.Namespace, "", info.Object,
		metav1.CreateOptions{FieldValidation: string(r.validate), FieldManager: "kubectl-create"}, "")
	if err != nil {
		return nil, info.Fault(err)
	}
	u, ok := got.(*unstructured.Unstructured)
	if !ok {
		return nil, session.NotAnObject(info, got)
	}
	made := &batchv1.Job{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, made); err != nil {
		return nil, session.NotAnObject(info, got)
	}
	return made, nil
}

// follow prints the Job's output until it has ended, and returns its exit code, or
// what of ours went wrong.
func (r *runJob) follow(ctx context.Context, s *session.Session, job *batchv1.Job) (waiting.Ending, int, error) {
	c, err := s.Typed()
	if err != nil {
		return waiting.Ending{}, exit.Ours, err
	}
	req := await.Request{
		For: await.Complete, Timeout: r.timeout,
		Targets: []await.Target{{
			Resource: client.Jobs.GroupVersionResource, Kind: client.Jobs.Kind, Namespace: job.Namespace, Name: job.Name,
			UID: job.UID, Generation: job.Generation, ResourceVersion: job.ResourceVersion,
		}},
	}
	if err := r.Apply(&req); err != nil {
		return waiting.Ending{}, exit.Ours, err
	}
	spec := job.Spec.Template.Spec
	one := len(spec.Containers)+len(spec.InitContainers) == 1
	e, readErr := waiting.Attend(ctx, s, c, req, waiting.Talk{Quiet: r.Quiet, Silent: true, Calm: true, Events: r.events}, one)
	switch {
	case ctx.Err() != nil:
		return e, exit.Interrupted, nil
	case e.Err == nil && e.Outcome.Result == await.AllDone:
		return e, exit.Done, readErr
	case e.Err == nil && e.Outcome.Result == await.SomeFailed:
		code, known, unborn, err := jobExitCode(ctx, c, job)
		if known || err != nil {
			return e, code, errors.Join(err, readErr)
		}
		if unborn != nil && len(e.Outcome.Objects) > 0 {
			// The failure of the Job may have been reported before that of its pod.
			p := &e.Outcome.Objects[0]
			p.Parts, p.More = []await.Part{*unborn}, 0
		}
	}
	return e, exit.Ours, e.Failure(waiting.Talk{})
}

// jobExitCode returns the exit code of the container that failed a Job, if one did:
// that of the pod that ended last. Where no container has begun, unborn is the pod of the
// last one that was tried, and why.
func jobExitCode(ctx context.Context, c client.Interface, job *batchv1.Job) (code int, known bool, unborn *await.Part, err error) {
	now, err := client.Jobs.Get(ctx, c, job.Namespace, job.Name)
	if err != nil {
		return exit.Ours, false, nil, err
	}
	failed := slices.ContainsFunc(now.Status.Conditions, func(c batchv1.JobCondition) bool {
		// The second is the first one's announcement: the decision has been made.
		return (c.Type == batchv1.JobFailed || c.Type == batchv1.JobFailureTarget) && c.Status == corev1.ConditionTrue && c.Reason != batchv1.JobReasonDeadlineExceeded
	})
	if !failed || now.UID != job.UID {
		return exit.Ours, false, nil, nil // it has not ended by itself
	}
	pods, _, err := client.Pods.List(ctx, c, job.Namespace, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(now.Spec.Selector)})
	if err != nil {
		return exit.Ours, false, nil, err
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
			if t != nil && notStarted(t.Reason) {
				unborn = &await.Part{
					Object: await.Ref{
						Resource: client.Pods.GroupVersionResource, Kind: client.Pods.Kind, Namespace: p.Namespace, Name: p.Name, UID: p.UID,
					},
					Verdict: await.Verdict{State: await.Failed, Certainty: await.Certain, Cause: fmt.Sprintf("container %s: %s: %s", s.Name, t.Reason, t.Message)},
				}
			}
			if t == nil || t.ExitCode == 0 || notStarted(t.Reason) || t.FinishedAt.Time.Before(last) {
				continue
			}
			code, known, last = int(t.ExitCode), true, t.FinishedAt.Time
		}
	}
	return code, known, unborn, nil
}

// notStarted reports whether a container has ended without having begun, so that its
// exit code is one that the runtime made up.
func notStarted(reason string) bool {
	return reason == "StartError" || reason == "ContainerCannotRun" || reason == "ContainerStatusUnknown"
}

// leave deletes the Job or says what goes on.
func (r *runJob) leave(ctx context.Context, s *session.Session, job *batchv1.Job, failed bool) error {
	name := "job/" + job.Name
	interrupted := ctx.Err() != nil
	if !r.remove {
		switch {
		case interrupted:
			_, _ = fmt.Fprintf(r.Err, "interrupted: %s continues to run; follow its output with '%s %s -f', delete it with '%s %s'\n",
				name, s.Hint("logs", job.Namespace), name, s.Hint("delete", job.Namespace), name)
		case failed && !r.Quiet:
			_, _ = fmt.Fprintf(r.Err, "%s still exists; delete it with '%s %s'\n", name, s.Hint("delete", job.Namespace), name)
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
	if exit.IsGone(err) {
		err = nil // already deleted by another client
	}
	if err == nil && interrupted {
		_, _ = fmt.Fprintf(r.Err, "interrupted: %s was deleted\n", name)
	}
	return err
}
