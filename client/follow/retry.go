package follow

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
)

// A Retry returns how long to pause after so many errors in a row, of which err is the last, and whether to try again.
type Retry func(err error, failures int) (pause time.Duration, again bool)

// The shortest and the longest pause of [Eager]. The longest one is short, because a wait should end soon after its
// server is back.
const (
	FirstPause = 50 * time.Millisecond
	MaxPause   = 2 * time.Second
)

// Eager is the [Retry] for callers that a user waits for. It gives up if the error is [Hopeless].
func Eager(err error, failures int) (pause time.Duration, again bool) {
	return run.Backoff{First: FirstPause, Max: MaxPause}.Pause(failures), !Hopeless(err)
}

// Hopeless reports whether retrying the request would get the same error.
func Hopeless(err error) bool {
	var cert *client.CertificateError
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsNotAcceptable(err) || runtime.IsNotRegisteredError(err) || errors.As(err, &cert)
}

// expired reports whether a server cannot continue a watch, or a list in pages.
func expired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsNotFound(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// rest pauses. It returns false if ctx is cancelled.
func (r *reader) rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Again:
		r.failures = 0
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
