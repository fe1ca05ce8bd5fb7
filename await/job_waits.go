package await

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await/follow"
	"github.com/sampan-io/sampan/client"
)

// JobTimeout limits the waits for jobs, and for pods on their nodes, whose context
// has no deadline.
const JobTimeout = 15 * time.Minute

// The waits of this file and its neighbours take the [client.Interface] of any
// cluster: [client.NewREST] makes one from a rest.Config, [client.FromREST] from a
// client-go clientset.

// within gives ctx a deadline if it has none.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, limited := ctx.Deadline(); limited {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, JobTimeout)
}

// WaitForJobPodsRunning waits until exactly as many pods of a job are in the phase
// Running as are expected. The pods are those with the job's label, so the job need not
// exist yet. The error at the deadline, which is 15 minutes away if ctx has none,
// wraps context.DeadlineExceeded and says how many there were and what holds up the
// others.
func WaitForJobPodsRunning(ctx context.Context, c client.Interface, namespace, job string, expected int) error {
	ctx, cancel := within(ctx)
	defer cancel()
	type pod struct {
		name    string
		running bool
		why     Verdict
	}
	pods, listed := map[types.UID]pod{}, map[types.UID]bool(nil)
	running, known := 0, false
	forget := func(id types.UID) {
		if pods[id].running {
			running--
		}
		delete(pods, id)
	}
	var failure, lost error
	take := func(o client.Object) bool {
		o, failure = typed(o)
		p, ok := o.(*corev1.Pod)
		if !ok {
			return false
		}
		forget(p.UID)
		pods[p.UID] = pod{p.Name, p.Status.Phase == corev1.PodRunning, podTrouble(Running, p).Verdict}
		if pods[p.UID].running {
			running++
		}
		return true
	}
	f := &follow.Follower{Client: c, Source: follow.Source{
		GroupVersionResource: client.Pods.GroupVersionResource, Namespace: namespace, Labels: batchv1.JobNameLabel + "=" + job,
	}}
	f.Tell = func(r follow.Report) bool {
		lost = r.Err
		switch {
		case r.Final || r.Err != nil && !known:
			failure = r.Err
			return false
		case r.Err != nil:
			return true
		case r.Deleted:
			forget(r.Object.GetUID())
		case r.Object != nil:
			if !take(r.Object) {
				return false
			}
		default:
			if r.Begins {
				listed = map[types.UID]bool{}
			}
			for _, o := range r.Page {
				listed[o.GetUID()] = true
				if !take(o) {
					return false
				}
			}
			for id := range pods {
				if r.Whole && !listed[id] {
					forget(id)
				}
			}
			known = known || r.Whole
		}
		return !known || running != expected
	}
	f.Run(ctx)
	switch {
	case failure != nil:
		return fmt.Errorf("pods of job %s/%s: %w", namespace, job, failure)
	case known && running == expected && lost == nil:
		return nil
	case lost != nil:
		return fmt.Errorf("pods of job %s/%s: %w", namespace, job, lost)
	}
	worst := pod{}
	for _, p := range pods {
		if p.why.severity() > worst.why.severity() {
			worst = p
		}
	}
	text := fmt.Sprintf("%d pods of job %s/%s are running, %d are expected", running, namespace, job, expected)
	if worst.why.Cause != "" {
		text += "; pod " + worst.name + ": " + worst.why.Cause
	}
	return fmt.Errorf("%s: %w", text, context.Cause(ctx))
}

// WaitForJobFinish waits until a job is complete or has failed, and says which: the
// verdict is Done, or Failed with the job's own reason. A job that can certainly never
// finish (its image has no name) has failed, too. The error is for waits that could
// not be had, for a job that is not there or is deleted (IsNotFound), and for the
// deadline, as [WaitForJobPodsRunning] has it.
func WaitForJobFinish(ctx context.Context, c client.Interface, namespace, job string) (Verdict, error) {
	ctx, cancel := within(ctx)
	defer cancel()
	out, err := Until(ctx, c, Request{For: Finished, Fail: FailNever, Targets: []Target{{
		Resource: client.Jobs.GroupVersionResource, Kind: client.Jobs.Kind, Namespace: namespace, Name: job,
	}}}, nil)
	var verdict Verdict
	if len(out.Objects) == 1 {
		verdict = out.Objects[0].Verdict
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return verdict, fmt.Errorf("job %s/%s has not finished: %s: %w", namespace, job, verdict.Cause, err)
	case err != nil:
		return verdict, fmt.Errorf("job %s/%s: %w", namespace, job, err)
	case out.Result == Vanished:
		return verdict, apierrors.NewNotFound(client.Jobs.GroupResource(), job)
	}
	return verdict, nil
}

// A JobFailedError says that a job will not complete.
type JobFailedError struct {
	Namespace, Job string
	Reason         string // the job's own, with its message
}

func (e *JobFailedError) Error() string {
	return fmt.Sprintf("job %s/%s failed: %s", e.Namespace, e.Job, e.Reason)
}

// WaitForJobComplete is [WaitForJobFinish] for those who expect the job to go well: that
// it fails is a [*JobFailedError].
func WaitForJobComplete(ctx context.Context, c client.Interface, namespace, job string) error {
	verdict, err := WaitForJobFinish(ctx, c, namespace, job)
	if err == nil && verdict.State == Failed {
		err = &JobFailedError{namespace, job, strings.TrimPrefix(verdict.Cause, "the job failed: ")}
	}
	return err
}
