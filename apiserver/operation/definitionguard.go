package operation

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

var customResourceDefinitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// definitionGuards guard the creations of custom resources by their definitions, so that no object can come after the
// deletion of its definition has begun, whichever server sees that first. It is a [admission.Looker].
//
// To decode a definition takes longer than to create an object, so the revision at which each was last found to be
// alive is kept. The zero value is ready for use.
type definitionGuards struct {
	operations *Operations
	seen       sync.Map // from *catalog.Kind to *seenDefinition, while the catalog has the kind
}

type seenDefinition struct {
	name  string
	key   string
	alive atomic.Uint64 // the revision at which the definition was not being deleted, or 0
}

// of returns the place for the definition of a kind.
func (g *definitionGuards) of(kind *catalog.Kind) *seenDefinition {
	if d, ok := g.seen.Load(kind); ok {
		return d.(*seenDefinition)
	}
	d := &seenDefinition{name: kind.GR().String()}
	if definitions := g.operations.catalog.Resource(customResourceDefinitions); definitions != nil {
		d.key = definitions.Key("", d.name)
	}
	g.seen.Store(kind, d)
	context.AfterFunc(kind.Life(), func() { g.seen.Delete(kind) })
	return d
}

// Look implements [admission.Looker]: it returns the guard of the creation of a custom resource, or an error if the
// definition is gone or is being deleted.
func (g *definitionGuards) Look(_ context.Context, a *admission.Attributes) (admission.Guard, error) {
	d := g.of(a.Kind.Hub())
	rec, err := g.operations.store.Get(d.key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return admission.Guard{}, apierrors.NewNotFound(a.Kind.GR(), a.Name)
	case err != nil:
		return admission.Guard{}, StoreFault(err)
	}
	if d.alive.Load() != uint64(rec.Revision) {
		item := codec.ItemOf(g.operations.catalog.Resource(customResourceDefinitions), rec.Key, rec.Value)
		if item.Object().GetDeletionTimestamp() != nil {
			return admission.Guard{}, definitionEnds(a.Kind, a.Name)
		}
		d.alive.Store(uint64(rec.Revision))
	}
	return admission.Guard{Resource: customResourceDefinitions, Name: d.name, Revision: rec.Revision, By: g}, nil
}

func definitionEnds(kind *catalog.Kind, name string) error {
	return apierrors.NewForbidden(kind.GR(), name, errors.New("create not allowed while custom resource definition is terminating"))
}
