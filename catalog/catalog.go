package catalog

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// A Catalog is a set of kinds. It does not change after [New] and is safe for
// concurrent use.
type Catalog struct {
	kinds  []*Kind
	byGVR  map[schema.GroupVersionResource]*Kind
	byGVK  map[schema.GroupVersionKind]*Kind
	scheme *runtime.Scheme
}

// New returns the catalog of the given kinds. A duplicate kind, or one that lacks its names, is an
// error.
func New(groups ...[]*Kind) (*Catalog, error) {
	c := &Catalog{
		byGVR:  map[schema.GroupVersionResource]*Kind{},
		byGVK:  map[schema.GroupVersionKind]*Kind{},
		scheme: runtime.NewScheme(),
	}
	for _, k := range slices.Concat(groups...) {
		if k.Resource == "" || k.Singular == "" || k.Kind == "" || k.Version == "" || k.New == nil || (k.NewList == nil) != k.Answered() {
			return nil, fmt.Errorf("catalog: kind %v lacks a name or a constructor", k.GroupVersionKind)
		}
		if c.byGVR[k.GVR()] != nil || c.byGVK[k.GroupVersionKind] != nil {
			return nil, fmt.Errorf("catalog: duplicate kind %v", k.GroupVersionKind)
		}
		c.kinds = append(c.kinds, k)
		c.byGVR[k.GVR()] = k
		c.byGVK[k.GroupVersionKind] = k
		gv := k.GroupVersion()
		c.scheme.AddKnownTypeWithName(k.GroupVersionKind, k.New())
		if !k.Answered() {
			c.scheme.AddKnownTypeWithName(gv.WithKind(k.Kind+"List"), k.NewList())
		}
		for _, s := range k.Subresources {
			if b := s.Body(); b != nil {
				c.scheme.AddKnownTypeWithName(b.Kind, b.New())
			}
		}
		metav1.AddToGroupVersion(c.scheme, gv)
	}
	utilruntime.Must(metav1.AddMetaToScheme(c.scheme))
	return c, nil
}

// Kinds returns all kinds in the order in which they were given. The slice must
// not be changed.
func (c *Catalog) Kinds() []*Kind { return c.kinds }

// Resource returns the kind that serves a resource, or nil.
func (c *Catalog) Resource(gvr schema.GroupVersionResource) *Kind { return c.byGVR[gvr] }

// Kind returns the kind of a body, or nil.
func (c *Catalog) Kind(gvk schema.GroupVersionKind) *Kind { return c.byGVK[gvk] }

// Scheme maps the kinds, their lists, the bodies of their subresources and the
// meta kinds to Go types. It must not be changed.
func (c *Catalog) Scheme() *runtime.Scheme { return c.scheme }

// Subresource returns the subresource of that name, or nil.
func (k *Kind) Subresource(name string) *Subresource {
	for i := range k.Subresources {
		if k.Subresources[i].Name == name {
			return &k.Subresources[i]
		}
	}
	return nil
}
