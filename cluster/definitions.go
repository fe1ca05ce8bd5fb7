package cluster

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/sampan-io/sampan/apiserver/definitions"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/webhook"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
)

// loadDefinitions makes the follower of definitions of custom resources, and serves the established ones: their objects
// are stored, and must be served from the first request on.
func (c *cluster) loadDefinitions(p *controlPlane) error {
	objects := operation.NewReader(p.catalog, p.store)
	p.definitions = definitions.New(definitions.Options{
		Catalog: p.catalog, Log: c.Log,
		Webhook: func(config *apiextensionsv1.WebhookClientConfig) (definitions.Webhook, error) {
			return webhook.New(hookConfig(config), webhook.Options{Services: webhook.Services{Objects: objects}, Refuse: c.inventedAddresses(objects)})
		},
	})
	stored, err := operation.StoredDefinitions(p.catalog, p.store)
	if err != nil {
		return fmt.Errorf("reading the definitions of custom resources: %w", err)
	}
	p.definitions.Load(stored)
	return nil
}

// hookConfig says where the conversion webhook of a definition is.
func hookConfig(c *apiextensionsv1.WebhookClientConfig) webhook.Config {
	out := webhook.Config{CABundle: c.CABundle}
	if c.URL != nil {
		out.URL = *c.URL
	}
	if s := c.Service; s != nil {
		out.Service = &webhook.Service{Namespace: s.Namespace, Name: s.Name}
		if s.Path != nil {
			out.Service.Path = *s.Path
		}
		if s.Port != nil {
			out.Service.Port = *s.Port
		}
	}
	return out
}

// customResources returns the custom resources that a catalog has, each in one version.
func customResources(kinds *catalog.Catalog) cache.Served {
	return func() ([]cache.Resource, <-chan struct{}) {
		now := kinds.Snapshot()
		var all []cache.Resource
		for _, hub := range now.Hubs() {
			if !hub.Untyped() {
				continue
			}
			if served := hub.Served(); len(served) > 0 {
				k := served[0]
				all = append(all, cache.Resource{
					Resource:  client.Resource[client.Object]{GroupVersionResource: k.GVR(), Kind: k.Kind, Namespaced: k.Namespaced},
					Creatable: true,
				})
			}
		}
		return all, now.Replaced()
	}
}
