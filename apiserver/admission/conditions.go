package admission

import (
	"context"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// A Guard says that the write rests on another object as a plug-in has seen it. The store makes the write only if that
// object has not changed (store-I12). If it has, the API server asks the plug-in to look again, and tries once more; it
// does not ask the other plug-ins a second time.
type Guard struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
	Revision        store.Revision // 0: the object must not exist
	By              Looker
}

// A Looker is the author of a guard.
type Looker interface {
	// Look returns a guard in the place of one that does not hold any more, or why the write is refused now.
	Look(ctx context.Context, a *Attributes) (Guard, error)
}

// A Charge says that a write adds to an account of quotas, and up to which revision the plug-in has counted that. The
// store makes the write only if no other server has charged the account since (store-I12). If one has, the API server
// asks the plug-in to count again, and tries once more.
type Charge struct {
	store.Charge
	Recounter Recounter
}

// A Recounter is the author of a charge.
type Recounter interface {
	// Recount returns the revision up to which the account is counted now, or why the write is refused now.
	Recount(ctx context.Context, a *Attributes) (store.Revision, error)
}

// Changes are the changes of the objects of a resource in a namespace since some revision, up to another one.
type Changes struct {
	List []Change // in order

	// Whole says that List has all objects as of Now instead, because older changes are not known any more.
	Whole bool

	Now store.Revision
}

// A Change is one write.
type Change struct {
	Object catalog.Object // after the write, or the last state
	Gone   bool
}

// revisionOf returns the revision at which a stored object was written.
func revisionOf(o catalog.Object) (store.Revision, error) {
	revision, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0, apierrors.NewInternalError(fmt.Errorf("the resource version %q of %q is not a revision", o.GetResourceVersion(), o.GetName()))
	}
	return store.Revision(revision), nil
}
