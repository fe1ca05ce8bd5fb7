package operation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/store"
)

// ErrPanic stands for a panic of an operation, whose details are in the log.
var ErrPanic = errors.New("this request caused a fault in the server; see its log")

// Codes of statuses. Clients see them as those of HTTP (RFC 9110, 15; RFC 4918, 11.5).
const (
	codeCreated             = 201
	codeInternalError       = 500
	codeInsufficientStorage = 507
)

// optimisticLock is what Kubernetes says to a writer whose object is not the newest.
const optimisticLock = "the object has been modified; please apply your changes to the latest version and try again"

func modified(gr schema.GroupResource, name string) error {
	return apierrors.NewConflict(gr, name, errors.New(optimisticLock))
}

// StoreFault turns an error of the store into an API status error. Not found and
// conflict mean different things to different callers, who handle them before.
func StoreFault(err error) error {
	switch {
	case errors.Is(err, store.ErrExpired):
		return apierrors.NewResourceExpired("too old resource version: " + err.Error())
	case errors.Is(err, store.ErrFuture):
		return tooLarge(err.Error())
	case isQuota(err):
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: codeInsufficientStorage, Reason: "InsufficientStorage",
			Message: "nothing was changed: " + err.Error() + "; " + QuotaAdvice,
		}}
	case errors.Is(err, store.ErrFull):
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: codeInsufficientStorage, Reason: "InsufficientStorage",
			Message: "nothing was changed: " + err.Error() + "; delete objects, or make space on the file system of the data directory",
		}}
	case errors.Is(err, store.ErrUnavailable):
		return unavailable(err)
	case errors.Is(err, store.ErrStopped):
		return apierrors.NewServiceUnavailable("the server is shutting down")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return endedEarly(err)
	}
	return apierrors.NewInternalError(err)
}

// endedEarly is the answer to a request whose client has gone, or whose time is over, while it was being executed.
func endedEarly(err error) *apierrors.StatusError {
	return apierrors.NewTimeoutError("the request ended before it was done: "+err.Error(), 0)
}

// QuotaAdvice is the advice when writes are refused for the quota of the store.
const QuotaAdvice = "delete objects, or have the administrator start the cluster with a larger --store-quota"

func isQuota(err error) bool {
	_, ok := errors.AsType[*store.QuotaError](err)
	return ok
}

// unavailable is the answer while the store cannot be asked. Clients try again.
func unavailable(err error) error {
	status := apierrors.NewServiceUnavailable(err.Error())
	status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return status
}

// current waits until this server shows every write that was acknowledged before.
func (o *Operations) current(ctx context.Context) error {
	if err := o.store.Fresh(ctx); err != nil {
		return StoreFault(err)
	}
	return nil
}

// behind is asked after a write was refused because of the state of its object: it reports whether this server did
// not show the newest one.
func (o *Operations) behind(ctx context.Context) bool {
	before := o.store.Revision()
	return o.current(ctx) == nil && o.store.Revision() > before
}

// shows waits until this server has a resource version that a client has read, perhaps from another server. Where
// there is none such, the write ends in a conflict.
func (o *Operations) shows(ctx context.Context, rv string) error {
	if want, err := parseRevision(rv); err != nil || want <= o.store.Revision() {
		return nil
	}
	return o.current(ctx)
}

// tooLarge is the answer to a client that has seen a revision which the store has
// not: it talked to another server, or to this one before a crash.
func tooLarge(message string) error {
	err := apierrors.NewTimeoutError("Too large resource version: "+message, 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

// futureWait is how long a read waits for a resource version that this server does not have yet, as
// upstream's watch cache does: with several servers another one may have written it a moment ago.
const futureWait = 3 * time.Second

// Since waits until a read with a resource version can be answered: "" asks for the newest state, "0" for any, and
// others for one that is not older.
func (o *Operations) Since(ctx context.Context, rv string) error {
	if rv == "" {
		return o.current(ctx)
	}
	want, err := parseRevision(rv)
	if err != nil {
		return err
	}
	return o.reach(ctx, want)
}

func (o *Operations) reach(ctx context.Context, want store.Revision) error {
	if want <= o.store.Revision() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, futureWait)
	defer cancel()
	if err := o.store.Reach(ctx, want); err != nil {
		return tooLarge(fmt.Sprintf("%d, current: %d", want, o.store.Revision()))
	}
	return nil
}

// parseRevision reads a resource version; empty is 0.
func parseRevision(rv string) (store.Revision, error) {
	if rv == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("resourceVersion: Invalid value: %q: must be a resource version from this server", rv))
	}
	return store.Revision(n), nil
}

// StatusOf returns the status that an error carries. Errors without one are a fault of ours.
func StatusOf(err error) *metav1.Status {
	var carrier apierrors.APIStatus
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		carrier = endedEarly(err)
	} else if !errors.As(err, &carrier) {
		carrier = apierrors.NewInternalError(err)
	}
	s := carrier.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	if s.Code == 0 {
		s.Code = codeInternalError
	}
	return &s
}
