package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
)

// JobTimeout is the deadline of the waits for jobs and for pods on nodes if their context has none.
const JobTimeout = 15 * time.Minute

// within gives ctx a deadline if it has none.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, limited := ctx.Deadline(); limited {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, JobTimeout)
}

// WaitForJobFinish waits until a job is complete or has failed. The verdict is Done, or Failed with the reason in the
// job's condition. A job that can certainly never finish (its image name is invalid) is Failed, too. It returns an error
// if the job does not exist or is deleted (IsNotFound), if the job cannot be read, and at the deadline, which is that of
// [WaitForJobPodsInPhase].
func WaitForJobFinish(ctx context.Context, c client.Interface, namespace, job string) (await.Verdict, error) {
	ctx, cancel := within(ctx)
	defer cancel()
	out, err := await.Until(ctx, c, await.Request{For: await.Finished, Fail: await.FailNever, Targets: []await.Target{{
		Resource: client.Jobs.GroupVersionResource, Kind: client.Jobs.Kind, Namespace: namespace, Name: job,
	}}}, nil)
	var verdict await.Verdict
	if len(out.Objects) == 1 {
		verdict = out.Objects[0].Verdict
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return verdict, fmt.Errorf("job %s/%s has not finished: %s: %w", namespace, job, cmp.Or(verdict.Cause, "no status yet"), err)
	case err != nil:
		return verdict, fmt.Errorf("job %s/%s: %w", namespace, job, err)
	case out.Result == await.Vanished:
		return verdict, apierrors.NewNotFound(client.Jobs.GroupResource(), job)
	}
	return verdict, nil
}

// A JobFailedError reports that a job will not complete.
type JobFailedError struct {
	Namespace, Job string
	Reason         string // reason and message of the job's condition
}

func (e *JobFailedError) Error() string {
	return fmt.Sprintf("job %s/%s failed: %s", e.Namespace, e.Job, e.Reason)
}

// WaitForJobComplete is [WaitForJobFinish] that returns a [*JobFailedError] if the job fails.
func WaitForJobComplete(ctx context.Context, c client.Interface, namespace, job string) error {
	verdict, err := WaitForJobFinish(ctx, c, namespace, job)
	if err == nil && verdict.State == await.Failed {
		err = &JobFailedError{namespace, job, strings.TrimPrefix(verdict.Cause, "the job failed: ")}
	}
	return err
}
