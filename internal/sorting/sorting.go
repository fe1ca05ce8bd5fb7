// Package sorting sorts slices of values with code that all types of elements share. The compiler makes slices.SortFunc again
// for each type of values, and each is 20 KB of the program; for pointers there is one. So short slices of values are sorted with
// this package, and slices of pointers and those of hot paths with package slices.
package sorting

import (
	"iter"
	"slices"
	"sort"
)

// Slice sorts s in place by compare, as [slices.SortFunc] does.
func Slice[S ~[]E, E any](s S, compare func(a, b E) int) { sort.Sort(by[E]{s, compare}) }

// Stable is [Slice] that keeps the order of equal elements, as [slices.SortStableFunc] does.
func Stable[S ~[]E, E any](s S, compare func(a, b E) int) { sort.Stable(by[E]{s, compare}) }

// Sorted returns the values of a sequence in order, as [slices.SortedFunc] does.
func Sorted[E any](values iter.Seq[E], compare func(a, b E) int) []E {
	s := slices.Collect(values)
	Slice(s, compare)
	return s
}

// SortedStable is [Sorted] that keeps the order of equal values, as [slices.SortedStableFunc] does.
func SortedStable[E any](values iter.Seq[E], compare func(a, b E) int) []E {
	s := slices.Collect(values)
	Stable(s, compare)
	return s
}

// by is a slice with its order.
type by[E any] struct {
	s       []E
	compare func(a, b E) int
}

func (b by[E]) Len() int           { return len(b.s) }
func (b by[E]) Less(i, j int) bool { return b.compare(b.s[i], b.s[j]) < 0 }
func (b by[E]) Swap(i, j int)      { b.s[i], b.s[j] = b.s[j], b.s[i] }
