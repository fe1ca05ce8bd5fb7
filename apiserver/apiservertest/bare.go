package apiservertest

import (
	"context"
	"testing"
	"time"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/kinds"
)

// never is the pause between bookmarks in idle watches of bare servers: in fake time nothing of the
// server wakes up by itself.
const never = 100 * 365 * 24 * time.Hour

// OpenBare returns an API server as [Open] does, for tests that write small, incomplete objects: it
// neither defaults nor validates more than metadata, and every user may do everything. Its only
// admission plug-in is that of the life of namespaces. Watches that wait get no bookmarks. All else is as in the program. Change is as
// in Open.
func OpenBare(t testing.TB, change func(*apiserver.Options)) *apiserver.Server {
	t.Helper()
	return open(t, bare(t), never, func(o *apiserver.Options) {
		o.Authorizer = anybody{}
		o.Admission = []admission.Plugin{admission.NewNamespaceLifecycle(operation.NewReader(o.Catalog, o.Store))}
		if change != nil {
			change(o)
		}
	})
}

type anybody struct{}

func (anybody) Authorize(context.Context, rbac.Attributes) rbac.Decision {
	return rbac.Decision{Allowed: true}
}

// bare returns the program's kinds without what asks for complete objects.
func bare(t testing.TB) *catalog.Catalog {
	t.Helper()
	var all []*catalog.Kind
	for _, k := range kinds.All() {
		b := *k
		b.Default, b.Validate, b.Warn, b.Subresources, b.Versions = nil, nil, nil, nil, nil
		for _, v := range k.Versions {
			v.Default, v.Validate = nil, nil
			b.Versions = append(b.Versions, v)
		}
		if k.Grace != nil { // it looks at a field that is defaulted
			b.Grace = func(obj catalog.Object, asked *int64) int64 {
				obj = obj.DeepCopyObject().(catalog.Object) // a copy has the same type
				k.Default(obj)
				return k.Grace(obj, asked)
			}
		}
		for _, sub := range k.Subresources {
			switch shape := sub.Shape.(type) {
			case catalog.Part:
				shape.Validate = nil
				sub.Shape = shape
			case catalog.View:
				shape.Validate = nil
				sub.Shape = shape
			}
			b.Subresources = append(b.Subresources, sub)
		}
		all = append(all, &b)
	}
	c, err := catalog.New(all)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
