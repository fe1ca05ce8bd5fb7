package cluster

import (
	"context"
	"errors"
	"log/slog"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/condition"
	"github.com/sampan-io/sampan/apiserver/admission/webhooks"
	"github.com/sampan-io/sampan/apiserver/follow"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/webhook"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
)

// admissionWebhooks are the two plug-ins that ask webhooks.
type admissionWebhooks struct {
	mutating   webhooks.Mutating
	validating webhooks.Validating
	metrics    *webhooks.Metrics
	conditions *condition.Metrics // of webhooks and of policies
	log        *slog.Logger
}

// newWebhooks returns the plug-ins, with the configurations that are stored now: they count from the first request on.
func (c *cluster) newWebhooks(objects admission.Reader, authorizer *rbac.Authorizer) (*admissionWebhooks, error) {
	w := &admissionWebhooks{metrics: webhooks.NewMetrics(), conditions: condition.NewMetrics(), log: c.Log}
	opts := webhooks.Options{
		Objects: objects, Authorizer: authorizer, Metrics: w.metrics, Conditions: w.conditions, Log: c.Log,
		Calls: webhook.Options{Services: webhook.Services{Objects: objects}, Refuse: c.inventedAddresses(objects)},
	}
	var err error
	if w.mutating, err = webhooks.NewMutating(opts); err != nil {
		return nil, err
	}
	if w.validating, err = webhooks.NewValidating(opts); err != nil {
		return nil, err
	}
	ctx := context.Background() // reading memory does not wait
	return w, errors.Join(w.mutating.Refresh(ctx), w.validating.Refresh(ctx))
}

// followWebhooks refreshes the plug-ins after each change of the stored configurations, until ctx is over.
func (p *controlPlane) followWebhooks(ctx context.Context) error {
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	for resource, refresh := range map[schema.GroupVersionResource]func(context.Context) error{
		p.webhooks.mutating.Resource(): p.webhooks.mutating.Refresh, p.webhooks.validating.Resource(): p.webhooks.validating.Refresh,
	} {
		g.Go(func(ctx context.Context) {
			failed := false
			follow.Objects(ctx, p.catalog, p.store, resource, func([]catalog.Object) {
				err := refresh(ctx)
				if err != nil && !failed && ctx.Err() == nil {
					p.webhooks.log.ErrorContext(ctx, "cannot read webhook configurations, the earlier ones stay in effect", "resource", resource.Resource, "err", err)
				}
				failed = err != nil
			})
		})
	}
	g.Wait()
	return nil
}
