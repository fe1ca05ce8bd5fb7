package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/catalog"
)

// A failedCall says that a webhook could not be asked, or that its answer is not one. The failure policy says what that means
// for the request.
type failedCall struct {
	webhook string
	reason  error
	code    int // for the metrics
}

func (e *failedCall) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", e.webhook, e.reason)
}
func (e *failedCall) Unwrap() error { return e.reason }

// A rejection says that a webhook refused the write.
type rejection struct{ status *apierrors.StatusError }

func (e *rejection) Error() string { return e.status.Error() }

// Limits of a webhook's answer beside its decision.
const (
	maxWarnings    = 4 << 10  // bytes of all warnings of an answer; as in upstream
	maxAnnotations = 64       // audit annotations of an answer
	maxAnnotation  = 10 << 10 // bytes of the value of one
)

// ask calls a webhook about a request and returns its response if it allows the write. The error is a *failedCall, a *rejection or an API status error. The
// review was made in the request's goroutine: see [reviews].
func (p *plugin) ask(ctx context.Context, h *hook, c *call, a *admission.Attributes) (*admissionv1.AdmissionResponse, error) {
	failed := func(code int, reason error) error { return &failedCall{h.Name, reason, code} }
	if h.client.err != nil {
		return nil, failed(http.StatusInternalServerError, fmt.Errorf("could not get REST client: %w", h.client.err))
	}
	if t := h.timeout(); t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t)
		defer cancel()
	}
	answer, err := h.client.Call(ctx, c.body, 0)
	var response *admissionv1.AdmissionResponse
	if err == nil {
		response, err = c.read(answer, p.mutates)
		if unreadable := (*unreadableError)(nil); err != nil && !errors.As(err, &unreadable) {
			return nil, failed(http.StatusServiceUnavailable, fmt.Errorf("received invalid webhook response: %w", err))
		}
	}
	if err != nil {
		code := http.StatusServiceUnavailable
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			code = int(status.Status().Code)
		}
		return nil, failed(code, fmt.Errorf("failed to call webhook: %w", err))
	}
	annotate(a, h.Name, response.AuditAnnotations)
	if !response.Allowed {
		return response, &rejection{denied(h.Name, response.Result)}
	}
	return response, nil
}

// prepare returns the review of a call, or the error that ask would return for it. A dry run is refused if the webhook is
// not made for it.
func (p *plugin) prepare(r *reviews, h *hook, served *catalog.Kind) (*call, error) {
	if r.request.Attributes().DryRun {
		if h.SideEffects == nil {
			return nil, &failedCall{h.Name, errors.New("Webhook SideEffects is nil"), http.StatusBadRequest} //nolint:staticcheck // the words of Kubernetes
		}
		if !h.dryRuns() {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.Name))
		}
	}
	c, err := r.review(h, served)
	if errors.Is(err, errNoVersion) {
		return nil, &failedCall{h.Name, fmt.Errorf("could not create admission objects: %w", err), http.StatusBadRequest}
	}
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return c, nil
}

// denied returns the answer to a write that a webhook refused, which keeps the webhook's message.
func denied(name string, result *metav1.Status) *apierrors.StatusError {
	status := metav1.Status{}
	if result != nil {
		status = *result
	}
	if status.Code < http.StatusBadRequest {
		status.Code = http.StatusBadRequest
	}
	// A server may not answer with other numbers.
	status.Code = min(status.Code, 599)
	if status.Status == "" || status.Status == metav1.StatusSuccess {
		status.Status = metav1.StatusFailure
	}
	by := fmt.Sprintf("admission webhook %q denied the request", name)
	switch {
	case status.Message != "":
		status.Message = by + ": " + status.Message
	case status.Reason != "":
		status.Message = by + ": " + string(status.Reason)
	default:
		status.Message = by + " without explanation"
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// annotate adds the audit annotations of an answer. Those with an invalid key are left out, as in upstream.
func annotate(a *admission.Attributes, name string, annotations map[string]string) {
	if a.Audit == nil {
		return
	}
	n := 0
	for key, text := range annotations {
		key = name + "/" + key
		if n == maxAnnotations {
			return
		}
		if strings.Count(key, "/") != 1 || len(validation.IsQualifiedName(key)) > 0 {
			continue
		}
		n++
		a.Audit.Annotate(key, strings.ToValidUTF8(text[:min(len(text), maxAnnotation)], ""))
	}
}

// warn adds the warnings of an answer, up to a limit.
func warn(a *admission.Attributes, warnings []string) {
	size := 0
	for _, w := range warnings {
		if size += len(w); size > maxWarnings {
			return
		}
		a.Warnings = append(a.Warnings, w)
	}
}

// conclude measures a call and returns what its error means for the request: nil if it is to go on. open says that the call
// failed and that the failure policy ignores that.
func (p *plugin) conclude(ctx context.Context, h *hook, a *admission.Attributes, err error, took time.Duration) (open bool, _ error) {
	m := observation{name: h.Name, step: p.step, operation: string(a.Operation), took: took, code: http.StatusOK}
	var failure *failedCall
	var refusal *rejection
	switch {
	case err == nil:
		p.opts.Metrics.observe(&m)
		return false, nil
	case errors.As(err, &failure):
		m.code, m.rejected, m.cause = failure.code, !h.ignores(), callingError
		if errors.Is(failure, context.Canceled) {
			m.cause = "" // the client went away
		}
		p.opts.Metrics.observe(&m)
		if !h.ignores() {
			return false, apierrors.NewInternalError(failure)
		}
		if m.cause != "" {
			p.opts.Metrics.failedOpen(h.Name, p.step)
			p.opts.Log.WarnContext(ctx, "webhook failed and is ignored", "webhook", h.Name, "configuration", h.configuration, "err", failure.reason)
		}
		if ctx.Err() != nil {
			return true, apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
		}
		return m.cause != "", nil
	case errors.As(err, &refusal):
		m.code, m.rejected, m.cause = int(refusal.status.ErrStatus.Code), true, noError
		p.opts.Metrics.observe(&m)
		return false, refusal.status
	}
	m.code, m.rejected, m.cause = 0, true, serverError
	p.opts.Metrics.observe(&m)
	return false, err
}
