package cluster

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/webhooks"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/webhook"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
)

var (
	mutatingConfigurations   = admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")
	validatingConfigurations = admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations")
)

// admissionWebhooks are the two plug-ins that ask webhooks.
type admissionWebhooks struct {
	mutating   webhooks.Mutating
	validating webhooks.Validating
	metrics    *webhooks.Metrics
}

// newWebhooks returns the plug-ins, with the configurations that are stored now: they count from the first request on.
func (c *cluster) newWebhooks(objects admission.Reader, authorizer *rbac.Authorizer) (*admissionWebhooks, error) {
	w := &admissionWebhooks{metrics: webhooks.NewMetrics()}
	opts := webhooks.Options{
		Objects: objects, Authorizer: authorizer, Metrics: w.metrics, Log: c.Log,
		Calls: webhook.Options{Services: webhook.Services{Objects: objects}},
	}
	var err error
	if w.mutating, err = webhooks.NewMutating(opts); err != nil {
		return nil, err
	}
	if w.validating, err = webhooks.NewValidating(opts); err != nil {
		return nil, err
	}
	ctx := context.Background() // reading memory does not wait
	stored, err := objects.List(ctx, mutatingConfigurations, "", nil)
	if err != nil {
		return nil, err
	}
	w.mutating.Configure(stored)
	if stored, err = objects.List(ctx, validatingConfigurations, "", nil); err != nil {
		return nil, err
	}
	w.validating.Configure(stored)
	return w, nil
}

// followWebhooks gives the plug-ins the stored configurations after each change, until ctx is over.
func (p *controlPlane) followWebhooks(ctx context.Context) error {
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) {
		_ = apiserver.Follow(ctx, p.catalog, p.store, mutatingConfigurations, func(all []catalog.Object) { p.webhooks.mutating.Configure(all) })
	})
	g.Go(func(ctx context.Context) {
		_ = apiserver.Follow(ctx, p.catalog, p.store, validatingConfigurations, func(all []catalog.Object) { p.webhooks.validating.Configure(all) })
	})
	g.Wait()
	return nil
}
