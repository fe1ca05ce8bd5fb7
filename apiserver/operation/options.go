package operation

import (
	"context"
	"fmt"
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/managed"
	"github.com/sampan-io/sampan/apiserver/past"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// A Store keeps the objects. Package store has each method's contract; its values are those of package codec.
//
// Revision, Get, List, Changes and Watch show the state of this server, without waiting for others: a store that other
// servers use as well may have a newer state. A read that must not be older than its request calls Fresh before.
type Store interface {
	Revision() store.Revision
	Get(key string) (store.Record, error)
	List(q store.Query, p store.Page) (store.Listing, error)
	Changes(q store.Query, after store.Revision) ([]store.Event, store.Revision, error)
	Commit(ctx context.Context, w store.Write) (store.Record, error)
	Watch(ctx context.Context, q store.Query, after store.Revision) iter.Seq2[store.Event, error]
	Fresh(ctx context.Context) error
	Reach(ctx context.Context, r store.Revision) error
	Settled(ctx context.Context, key string) error
}

// An IssueHandler answers a subresource whose body is not stored ("token"), or the
// creation of an object that is not. The parent, which the latter has not, is shared,
// the body belongs to the request. The context carries the user.
type IssueHandler func(ctx context.Context, parent catalog.Object, body runtime.Object) (runtime.Object, error)

// Answer makes an [IssueHandler] of a function that answers the creation of an object that is not
// stored.
func Answer[T runtime.Object](f func(ctx context.Context, body T) (T, error)) IssueHandler {
	return func(ctx context.Context, _ catalog.Object, body runtime.Object) (runtime.Object, error) {
		question, ok := body.(T)
		if !ok {
			return nil, apierrors.NewInternalError(fmt.Errorf("got a %T, want a %T", body, question))
		}
		return f(ctx, question)
	}
}

// A ComputeHandler makes the objects of a kind that is computed from stored objects, which are shared: at most one from
// each, with its namespace and name, in the order of those. Where [catalog.Computed] names no stored resource, from is
// empty, and all objects are made. It leaves out what it cannot make; an error is that of the whole request.
type ComputeHandler func(ctx context.Context, from []catalog.Object) ([]catalog.Object, error)

// An Authorizer decides what a user may do.
type Authorizer interface {
	Authorize(ctx context.Context, a rbac.Attributes) rbac.Decision
}

// Options configures operations. All are required but the handlers of what no kind of the catalog has.
type Options struct {
	Store      Store
	Catalog    *catalog.Catalog
	Authorizer Authorizer
	Admission  []admission.Plugin // in the order in which they are asked
	Managers   *managed.FieldManager

	Issue   map[catalog.Handler]IssueHandler   // of subresources, and of creations of kinds, whose body is answered and not stored
	Compute map[catalog.Handler]ComputeHandler // of kinds whose objects are computed

	Past *past.History // nil: reads of earlier states are refused

	Audited bool // requests have audit records, see [audit.With]
}
