package webhooks

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/condition"
	"github.com/sampan-io/sampan/apiserver/admission/matching"
	"github.com/sampan-io/sampan/apiserver/webhook"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/admissioncel"
)

// Options configures the plug-ins. Objects is required.
type Options struct {
	Objects    admission.Reader     // of namespaces
	Authorizer condition.Authorizer // for match conditions; nil means that they cannot use it
	Calls      webhook.Options
	Metrics    *Metrics           // nil means that they are not read
	Conditions *condition.Metrics // of match conditions; nil means the same
	Log        *slog.Logger       // nil means slog.Default
}

// plugin is the common part of both plug-ins.
type plugin struct {
	opts     Options
	mutates  bool
	step     string // the label type of metrics
	resource schema.GroupVersionResource

	mu      sync.Mutex
	stored  configurations // guarded by mu
	current atomic.Pointer[[]*hook]
}

func newPlugin(opts Options, mutates bool, step, resource string) (*plugin, error) {
	if opts.Objects == nil {
		return nil, errors.New("webhooks: Options needs Objects")
	}
	if opts.Metrics == nil {
		opts.Metrics = NewMetrics()
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	return &plugin{opts: opts, mutates: mutates, step: step, resource: admissionregistrationv1.SchemeGroupVersion.WithResource(resource)}, nil
}

// Resource returns the resource whose objects configure the plug-in.
func (p *plugin) Resource() schema.GroupVersionResource { return p.resource }

// Refresh uses the configurations that are stored now. A plug-in does that itself after a write of one, before the writer has
// its answer; the caller does it before the first request and whenever one changed in another way.
func (p *plugin) Refresh(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	objects, err := p.opts.Objects.List(ctx, p.resource, "", nil)
	if err == nil {
		p.configure(objects)
	}
	return err
}

// observe refreshes the plug-in after a write of a configuration.
func (p *plugin) observe(a *admission.Attributes) {
	if a.Kind.GVR() != p.resource || a.DryRun {
		return
	}
	a.Done = append(a.Done, func(committed bool) {
		if !committed {
			return
		}
		ctx := context.Background() //nolint:forbidigo // the write is made, even if its client has gone away
		if err := p.Refresh(ctx); err != nil {
			p.opts.Log.ErrorContext(ctx, "cannot read webhook configurations", "err", err)
		}
	})
}

// Configure replaces the configurations: the stored objects of the plug-in's kind, which are shared. Requests that have
// begun go on with those of before. Unchanged ones keep their compiled form and their connections.
func (p *plugin) Configure(objects []catalog.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.configure(objects)
}

// configure is Configure for a caller who holds mu.
func (p *plugin) configure(objects []catalog.Object) {
	after, unused := p.stored.update(objects, p.opts.Calls)
	hooks := after.hooks()
	p.stored = after
	p.current.Store(&hooks)
	for _, c := range unused {
		c.Close()
	}
}

// hooks returns the webhooks that may be asked about a request.
func (p *plugin) hooks(a *admission.Attributes) []*hook {
	hooks := p.current.Load()
	if hooks == nil || len(*hooks) == 0 || matching.Exempt(a) {
		return nil
	}
	return *hooks
}

// match returns the version of the request's resource in which a webhook is asked about the request, or nil if it is not.
func (p *plugin) match(ctx context.Context, h *hook, a *admission.Attributes, r func() *reviews) (*catalog.Kind, error) {
	served, err := h.matcher.Match(ctx, a, p.opts.Objects)
	if err != nil || served == nil || len(h.MatchConditions) == 0 {
		return served, err
	}
	values, err := r().request.In(served)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	subject := condition.Subject{Name: h.Name, Kind: condition.Webhook, Type: "validate", Operation: string(a.Operation)}
	if p.mutates {
		subject.Type = "admit"
	}
	holds, err := p.opts.Conditions.Match(subject, h.conditions(), admissioncel.NewEvaluation(ctx, values, admissioncel.Variables{}, apiconfig.RuntimeCELCostBudgetMatchConditions))
	switch {
	case err != nil && !h.ignores():
		return nil, apierrors.NewForbidden(a.Requested().GR(), a.AdmissionName(), err)
	case err != nil || !holds:
		p.opts.Conditions.Excluded(subject)
		return nil, nil // it is not asked
	}
	return served, nil
}
