package operation

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// longestAppearance bounds how long a request waits until this server serves a resource that another one serves
// already.
const longestAppearance = time.Second

// Appearing returns the kind of a custom resource that this server does not serve yet although its definition is stored
// and established, or nil if there is none: a definition is established by one server, and an object may be sent to
// another one right after. It blocks until the resource is served, for at most a second.
func (o *Operations) Appearing(ctx context.Context, gvr schema.GroupVersionResource) (*catalog.Kind, error) {
	definitions := o.catalog.Resource(customResourceDefinitions)
	if definitions == nil || gvr.Group == "" {
		return nil, nil
	}
	if err := o.current(ctx); err != nil {
		return nil, err
	}
	rec, err := o.store.Get(definitions.Key("", gvr.GroupResource().String()))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, StoreFault(err)
	}
	item := codec.ItemOf(definitions, rec.Key, rec.Value)
	if item.Fault() != nil {
		return nil, nil
	}
	if d, ok := item.Object().(*apiextensionsv1.CustomResourceDefinition); !ok || !toBeServed(d, gvr.Version) {
		return nil, nil
	}
	timeout := time.NewTimer(longestAppearance)
	defer timeout.Stop()
	for {
		now := o.catalog.Snapshot()
		if kind := now.Resource(gvr); kind != nil {
			return kind, nil
		}
		select {
		case <-now.Replaced():
		case <-timeout.C:
			return nil, nil
		case <-ctx.Done():
			return nil, endedEarly(ctx.Err())
		}
	}
}

// toBeServed reports whether every server serves, sooner or later, a version of the resource that d defines.
func toBeServed(d *apiextensionsv1.CustomResourceDefinition, version string) bool {
	return apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) &&
		slices.ContainsFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == version && v.Served
		})
}
