package dependents

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions reads and writes the conditions of one status, whose type the API gave to
// one kind alone. List is changed in place: it must belong to the caller.
type Conditions[C any] struct {
	List   *[]C
	Pack   func(metav1.Condition) C
	Unpack func(C) metav1.Condition
}

func (c Conditions[C]) is(kind string) func(C) bool {
	return func(one C) bool { return c.Unpack(one).Type == kind }
}

// Find returns the condition of that type, if there is one.
func (c Conditions[C]) Find(kind string) (metav1.Condition, bool) {
	i := slices.IndexFunc(*c.List, c.is(kind))
	if i < 0 {
		return metav1.Condition{}, false
	}
	return c.Unpack((*c.List)[i]), true
}

// Set makes one the condition of its type.
func (c Conditions[C]) Set(one metav1.Condition) {
	c.Drop(one.Type)
	*c.List = append(*c.List, c.Pack(one))
}

// Drop takes the condition of that type away. Without any the list is nil, as it is in
// an object that was read.
func (c Conditions[C]) Drop(kind string) {
	if *c.List = slices.DeleteFunc(*c.List, c.is(kind)); len(*c.List) == 0 {
		*c.List = nil
	}
}
