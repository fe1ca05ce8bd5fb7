package admission

import (
	"context"
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/catalog"
)

// A Chain asks plug-ins in order. The first refusal ends the matter.
type Chain []Plugin

// Admit asks every plug-in. After a refusal the caller still has to call
// [Attributes.Finish].
func (c Chain) Admit(ctx context.Context, a *Attributes) error {
	for _, p := range c {
		if err := p.Admit(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// A Late is a [Reader] that can be handed out before there is anything to read:
// plug-ins are made before the API server and read through it. The zero Late is
// ready for use; until [Late.Bind] is called its methods answer that the server
// is not available yet.
type Late struct{ reader atomic.Pointer[Reader] }

// Bind says where to read from now on.
func (l *Late) Bind(r Reader) { l.reader.Store(&r) }

// Get implements [Reader].
func (l *Late) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error) {
	r := l.reader.Load()
	if r == nil {
		return nil, errEarly(gvr)
	}
	return (*r).Get(ctx, gvr, namespace, name)
}

// List implements [Reader].
func (l *Late) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, where fields.Set) ([]catalog.Object, error) {
	r := l.reader.Load()
	if r == nil {
		return nil, errEarly(gvr)
	}
	return (*r).List(ctx, gvr, namespace, where)
}

func errEarly(gvr schema.GroupVersionResource) error {
	return apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "get", gvr.GroupResource(), "", "the API server is starting and cannot read objects yet", 1, true)
}
