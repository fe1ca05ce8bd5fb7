package cache

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
)

// index finds objects by what a function says of them. Its owner guards it.
type index[T client.Object] struct {
	values  func(T) []string
	buckets map[string]*bucket[T]
}

// bucket holds the objects of one value. Most hold one or a few, and a slice is an
// order of magnitude smaller than a map; large ones know where each object is.
type bucket[T client.Object] struct {
	list []T
	at   map[types.NamespacedName]int // in list; nil while the list is small
}

// small is up to where looking through a list is no slower than a map.
const small = 16

func (i *index[T]) find(value string) []T {
	if i == nil || i.buckets[value] == nil {
		return nil
	}
	return slices.Clone(i.buckets[value].list)
}

func (i *index[T]) add(obj T) {
	for _, v := range i.values(obj) {
		b := i.buckets[v]
		if b == nil {
			b = &bucket[T]{}
			i.buckets[v] = b
		}
		b.add(obj)
	}
}

func (i *index[T]) remove(obj T) {
	for _, v := range i.values(obj) {
		b := i.buckets[v]
		if b == nil {
			continue // the value was named twice
		}
		if b.remove(obj); len(b.list) == 0 {
			delete(i.buckets, v)
		}
	}
}

func (b *bucket[T]) add(obj T) {
	if n := b.place(obj); n >= 0 { // the value was named twice
		b.list[n] = obj
		return
	}
	b.list = append(b.list, obj)
	switch {
	case b.at != nil:
		b.at[keyOf(obj)] = len(b.list) - 1
	case len(b.list) > small:
		b.at = make(map[types.NamespacedName]int, 2*small)
		for n, o := range b.list {
			b.at[keyOf(o)] = n
		}
	}
}

// remove fills the place of obj with the last one.
func (b *bucket[T]) remove(obj T) {
	n := b.place(obj)
	if n < 0 {
		return
	}
	var none T
	last := len(b.list) - 1
	moved := b.list[last]
	b.list[last] = none // the garbage collector shall have it
	b.list = b.list[:last]
	if b.at != nil {
		delete(b.at, keyOf(obj))
	}
	if n == last {
		return
	}
	b.list[n] = moved
	if b.at != nil {
		b.at[keyOf(moved)] = n
	}
}

// place returns where the object of obj's name is, or -1.
func (b *bucket[T]) place(obj T) int {
	if b.at != nil {
		if n, ok := b.at[keyOf(obj)]; ok {
			return n
		}
		return -1
	}
	return slices.IndexFunc(b.list, func(o T) bool {
		return o.GetName() == obj.GetName() && o.GetNamespace() == obj.GetNamespace()
	})
}
