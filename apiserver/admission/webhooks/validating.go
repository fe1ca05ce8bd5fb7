package webhooks

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/internal/run"
)

// Validating is the plug-in ValidatingAdmissionWebhook. It is safe for concurrent use.
type Validating struct{ *plugin }

// NewValidating returns the plug-in, which has no configurations yet.
func NewValidating(opts Options) (Validating, error) {
	p, err := newPlugin(opts, false, "validating", "validatingwebhookconfigurations")
	return Validating{p}, err
}

// Name implements [admission.Plugin].
func (Validating) Name() string { return "ValidatingAdmissionWebhook" }

// maxParallel is how many webhooks are asked about one request at the same time.
const maxParallel = 32

// A consultation is the call of one validating webhook.
type consultation struct {
	hook     *hook
	call     *call
	response *admissionv1.AdmissionResponse
	err      error // of ask
	took     time.Duration
}

// Validate implements [admission.Validator].
func (p Validating) Validate(ctx context.Context, a *admission.Attributes) error {
	p.observe(a)
	var r *reviews
	made := func() *reviews {
		if r == nil {
			r = newReviews(a, p.opts.Authorizer, false)
		}
		return r
	}
	var all []*consultation
	for _, h := range p.hooks(a) {
		served, err := p.match(ctx, h, a, made)
		if err != nil {
			return err
		}
		if served == nil {
			continue
		}
		c := &consultation{hook: h}
		c.call, c.err = p.prepare(made(), h, served)
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
	}
	p.askAll(ctx, a, all)
	var first error
	for i, c := range all {
		if c.response != nil {
			warn(a, c.response.Warnings)
		}
		open, err := p.conclude(ctx, c.hook, a, c.err, c.took)
		if open {
			a.Audit.Annotate(fmt.Sprintf("failed-open.validating.webhook.admission.k8s.io/round_0_index_%d", i), c.hook.Name)
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// askAll asks the webhooks at the same time.
func (p Validating) askAll(ctx context.Context, a *admission.Attributes, all []*consultation) {
	ask := func(ctx context.Context, c *consultation) {
		if c.err != nil {
			return
		}
		start := time.Now()
		if err := run.Catch(func() (err error) { c.response, err = p.ask(ctx, c.hook, c.call, a); return err }); err != nil {
			c.err = err
		}
		c.took = time.Since(start)
	}
	if len(all) == 1 {
		ask(ctx, all[0])
		return
	}
	g := run.NewGroup(ctx, maxParallel)
	defer g.Stop()
	for _, c := range all {
		if !g.Go(func(ctx context.Context) { ask(ctx, c) }) {
			c.err = &failedCall{c.hook.Name, ctx.Err(), 0}
		}
	}
	g.Wait()
}
