package operation

import (
	"iter"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// StoredDefinitions returns the stored definitions of custom resources, for a server that starts. Each is decoded when it is
// its turn, so that a caller that keeps none needs the memory of one. Records that cannot be read are left out.
func StoredDefinitions(c *catalog.Catalog, st Store) (iter.Seq[*apiextensionsv1.CustomResourceDefinition], error) {
	kind := c.Resource(customResourceDefinitions)
	if kind == nil {
		return func(func(*apiextensionsv1.CustomResourceDefinition) bool) {}, nil
	}
	got, err := st.List(store.Query{Prefix: kind.Prefix("")}, store.Page{})
	if err != nil {
		return nil, StoreFault(err)
	}
	return func(yield func(*apiextensionsv1.CustomResourceDefinition) bool) {
		for _, rec := range got.Records {
			item := codec.ItemOf(kind, rec.Key, rec.Value)
			if item.Fault() != nil {
				continue
			}
			if d, ok := item.Object().(*apiextensionsv1.CustomResourceDefinition); ok && !yield(d) {
				return
			}
		}
	}, nil
}
