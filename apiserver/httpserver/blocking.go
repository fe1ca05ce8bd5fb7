package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver/blocking"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/fairness"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/priority"
	"github.com/sampan-io/sampan/internal/expression"
	"github.com/sampan-io/sampan/store"
)

// UntilHeader says how a blocking read ended: the name of the outcome that is true, or
// one of the endings below. A server that does not know blocking reads answers at once
// and without it.
const UntilHeader = "Sampan-Until"

// How a blocking read ends without an outcome.
const (
	endTimeout = "timeout" // 504
	endMissing = "missing" // 404: the object does not exist
	endDeleted = "deleted" // 404: it did when the wait began
	endError   = "error"   // anything else
)

// verbWait counts blocking reads apart from others; for authorization they are reads.
const verbWait = "WAIT"

// blocks reports whether a request is a blocking read.
func (x *exchange) blocks() bool {
	return strings.Contains(x.r.URL.RawQuery, blocking.ParamUntil) && blocking.Asked(x.r.URL.Query())
}

func newWaiters(o *Options) *blocking.Waiters {
	return blocking.New(blocking.Options{
		Store: readable{o.Store}, PerUser: o.MaxWaiting,
		Object: func(v store.Value) (map[string]any, error) {
			obj := v.(*codec.Item).Object()
			if u, ok := obj.(*unstructured.Unstructured); ok {
				return u.Object, nil
			}
			return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		},
	})
}

// serveBlocking answers a GET or LIST when an expression over its result becomes true. A user who may
// read may wait, because repeated reads would show the same. It holds no seat while it waits, like watches; it takes one to
// evaluate expressions, and one to answer with a list.
func (s *Server) serveBlocking(x *exchange, t operation.Target, verb string) {
	x.subject.verb = verbWait
	x.Header().Set(UntilHeader, endError)
	m, ok := x.media(offerOf(&t))
	if !ok {
		return
	}
	q := x.query()
	if err := notAt(q); err != nil {
		x.fail(err)
		return
	}
	if t.Sub != nil || verb == operation.VerbWatch || isTrue(q, "watch") {
		x.fail(apierrors.NewBadRequest("until: only whole objects and lists can be waited for: leave out the subresource and watch"))
		return
	}
	if t.Kind.Computed != nil {
		x.fail(apierrors.NewBadRequest(fmt.Sprintf("until: %s are computed when they are read, and cannot be waited for", t.Kind.GR())))
		return
	}
	if hub := t.Kind.Hub(); hub != t.Kind {
		x.fail(apierrors.NewBadRequest(fmt.Sprintf("until: %s can be waited for in version %s", t.Kind.GR(), hub.GroupVersion())))
		return
	}
	question, err := blocking.Parse(q, verb == operation.VerbList)
	if err != nil {
		x.fail(apierrors.NewBadRequest(err.Error()))
		return
	}
	r, err := s.newBlockingRead(&t, verb, q.Get("labelSelector"), q.Get("fieldSelector"))
	if err != nil {
		x.fail(err)
		return
	}
	r.Question, r.User, r.Unbounded = question, t.User.Name, x.flow.Level() == fairness.Exempt
	r.Enter = func(ctx context.Context) (blocking.Seat, error) { return s.enterEvaluation(ctx, x.seat.class) }
	if err := s.objects.Since(x.r.Context(), q.Get("resourceVersion")); err != nil {
		x.fail(err)
		return
	}
	mayRead := func() error { return s.objects.Allow(x.r.Context(), &t, verb, r.where, r.name) }
	if err := mayRead(); err != nil {
		x.fail(err)
		return
	}
	ctx, stop := s.streamContext(x.r.Context())
	defer stop()
	defer s.metrics.stream(&x.subject)()
	x.out.long = true
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Time{})
	a, err := s.waiters.Wait(ctx, r.Request)
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(answerTimeout))
	defer x.endPace()
	if lost := mayRead(); lost != nil { // much may have happened in the meantime
		x.fail(lost)
		return
	}
	if err != nil {
		end, err := s.blockingFault(&t, err)
		x.Header().Set(UntilHeader, end)
		x.fail(err)
		return
	}
	x.Header().Set(UntilHeader, a.Outcome)
	switch {
	case verb == operation.VerbList:
		l := operation.Listing{Meta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(uint64(a.Revision), 10)}, Items: make([]*codec.Item, len(a.Values))}
		for i, v := range a.Values {
			l.Items[i] = v.(*codec.Item)
		}
		if !s.begin(x) {
			return
		}
		defer x.finish()
		x.answerList(m, l, &t)
	case a.Value == nil:
		d := &metav1.StatusDetails{Name: t.Name, Group: t.Kind.Group, Kind: t.Kind.Resource}
		if a.Last != nil {
			d.UID = a.Last.(*codec.Item).Object().GetUID()
		}
		x.answer(codec.Media{Encoding: m.Encoding, Pretty: m.Pretty}, operation.Result{Made: operation.Success(d)}, &t)
	default:
		x.answer(m, operation.Result{Item: a.Value.(*codec.Item)}, &t)
	}
}

// A blockingRead is a blocking read and the attributes that the authorizer needs of it.
type blockingRead struct {
	blocking.Request
	where fields.Selector // nil if the read is of one object, or of all
	name  string          // of the only object that can match, or empty
}

func (s *Server) newBlockingRead(t *operation.Target, verb, labelSelector, fieldSelector string) (blockingRead, error) {
	r := blockingRead{Request: blocking.Request{Scope: t.Kind.Prefix(t.Namespace)}}
	if verb == operation.VerbGet {
		r.name, r.Key = t.Name, t.Key()
		return r, nil
	}
	c, err := operation.Select(t.Kind, t.Namespace, labelSelector, fieldSelector)
	if err != nil {
		return r, err
	}
	r.where, r.name, r.Query = c.Where, c.Name, c.Query
	if !c.Everything() {
		r.Matches = func(v store.Value) bool { return c.Matches(v.(*codec.Item)) }
	}
	return r, nil
}

// blockingFault turns an error of a blocking read into an API status error.
func (s *Server) blockingFault(t *operation.Target, err error) (end string, fault error) {
	var (
		timeout *blocking.TimeoutError
		missing *blocking.MissingError
		busy    *blocking.BusyError
		invalid *blocking.InvalidError
		eval    *expression.EvalError
		noSeat  *priority.RefusedError
	)
	switch {
	case errors.As(err, &timeout):
		status := apierrors.NewTimeoutError(fmt.Sprintf("%s: %s", t, timeout.Lacks()), 0)
		d := status.ErrStatus.Details
		d.Name, d.Group, d.Kind = t.Name, t.Kind.Group, t.Kind.Resource
		for _, u := range timeout.Unmet {
			d.Causes = append(d.Causes, metav1.StatusCause{Type: "NotYet", Field: u.Outcome.Name, Message: u.Detail})
		}
		return endTimeout, status
	case errors.As(err, &missing) && missing.Deleted:
		status := apierrors.NewNotFound(t.Kind.GR(), t.Name)
		status.ErrStatus.Message = fmt.Sprintf("%s %q was deleted during the wait", t.Kind.GR(), t.Name)
		status.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "Deleted", Message: missing.Error()}}
		if t.Name != "" {
			status.ErrStatus.Details.UID = missing.Last.(*codec.Item).Object().GetUID()
		}
		return endDeleted, status
	case errors.As(err, &missing):
		status := apierrors.NewNotFound(t.Kind.GR(), t.Name)
		if t.Name == "" {
			status.ErrStatus.Message = fmt.Sprintf("no %s match", t.Kind.GR())
		}
		return endMissing, status
	case errors.As(err, &noSeat):
		return endError, err
	case errors.As(err, &busy):
		return endError, apierrors.NewTooManyRequests(busy.Error(), 1)
	case errors.As(err, &invalid), errors.As(err, &eval):
		return endError, apierrors.NewBadRequest(err.Error())
	case errors.Is(err, context.Canceled) && s.streams.Err() != nil:
		status := apierrors.NewServiceUnavailable("the server is shutting down")
		status.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		return endError, status
	}
	return endError, operation.StoreFault(err)
}

// readable is the store of the blocking reads: it leaves unreadable records out of lists, and
// returns an error for them from Get.
type readable struct{ Store }

// Get returns an error for a record that cannot be read.
func (r readable) Get(key string) (store.Record, error) {
	rec, err := r.Store.Get(key)
	if err != nil {
		return rec, err
	}
	return rec, rec.Value.(*codec.Item).Fault()
}

// List returns the records that can be read.
func (r readable) List(q store.Query, p store.Page) (store.Listing, error) {
	l, err := r.Store.List(q, p)
	kept := l.Records[:0]
	for _, rec := range l.Records {
		if rec.Value.(*codec.Item).Fault() == nil {
			kept = append(kept, rec)
		}
	}
	l.Records = kept
	return l, err
}
