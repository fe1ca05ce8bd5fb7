package policies

import (
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/catalog"
)

// A table has the compiled objects of one resource, by name.
type table interface {
	resource() schema.GroupVersionResource
	// set compiles an object, unless the table has that generation of it, and reports whether it did.
	set(obj catalog.Object) bool
	remove(name string)
	// replace makes the table have these objects and no others.
	replace(all []catalog.Object)
}

// compiled is the [table] of objects that are an O and compile to a T.
type compiled[O catalog.Object, T any] struct {
	name    string // of the resource
	compile func(O) T
	newest  map[string]generation[T]
}

// A generation is one generation of an object, compiled.
type generation[T any] struct {
	uid    types.UID
	number int64
	is     T
}

func newCompiled[O catalog.Object, T any](resource string, compile func(O) T) compiled[O, T] {
	return compiled[O, T]{resource, compile, map[string]generation[T]{}}
}

func (c *compiled[O, T]) resource() schema.GroupVersionResource {
	return admissionregistrationv1.SchemeGroupVersion.WithResource(c.name)
}

func (c *compiled[O, T]) set(obj catalog.Object) bool {
	o, ok := obj.(O)
	if !ok {
		return false // the catalog has another type for the resource
	}
	old, known := c.newest[o.GetName()]
	if known && old.uid == o.GetUID() && old.number == o.GetGeneration() {
		return false
	}
	c.newest[o.GetName()] = generation[T]{o.GetUID(), o.GetGeneration(), c.compile(o)}
	return true
}

func (c *compiled[O, T]) remove(name string) { delete(c.newest, name) }

func (c *compiled[O, T]) replace(all []catalog.Object) {
	gone := maps.Clone(c.newest)
	for _, obj := range all {
		delete(gone, obj.GetName())
		c.set(obj)
	}
	for name := range gone {
		c.remove(name)
	}
}

// inOrder returns the compiled objects, in the order of their names.
func (c *compiled[O, T]) inOrder() []T {
	all := make([]T, 0, len(c.newest))
	for _, name := range slices.Sorted(maps.Keys(c.newest)) {
		all = append(all, c.newest[name].is)
	}
	return all
}
