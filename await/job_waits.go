package await

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/client"
)

// JobTimeout limits the waits for jobs, and for pods on their nodes, whose context
// has no deadline.
const JobTimeout = 15 * time.Minute

// The waits of this file and its neighbours take the [client.Interface] of any
// cluster: [client.NewREST] makes one from a rest.Config, [client.FromClientset] from a
// client-go clientset.

// within gives ctx a deadline if it has none.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, limited := ctx.Deadline(); limited {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, JobTimeout)
}

// WaitForJobFinish waits until a job is complete or has failed, and says which: the
// verdict is Done, or Failed with the job's own reason. A job that can certainly never
// finish (its image has no name) has failed, too. The error is for waits that could
// not be had, for a job that is not there or is deleted (IsNotFound), and for the
// deadline, as [WaitForJobPodsInPhase] has it.
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
