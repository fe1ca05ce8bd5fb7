package sorting_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sampan-io/sampan/internal/sorting"
)

type pair struct{ key, at int }

func byKey(a, b pair) int { return cmp.Compare(a.key, b.key) }

// TestSorting compares with package slices.
func TestSorting(t *testing.T) {
	for range 200 {
		s := make([]pair, rand.IntN(100))
		for i := range s {
			s[i] = pair{rand.IntN(10), i}
		}
		stable := slices.Clone(s)
		sorting.Stable(stable, byKey)
		if want := slices.SortedStableFunc(slices.Values(s), byKey); !slices.Equal(stable, want) {
			t.Fatalf("Stable made %v of %v, want %v", stable, s, want)
		}
		sorted := sorting.Sorted(slices.Values(s), byKey)
		sorting.Slice(s, byKey)
		if !slices.IsSortedFunc(s, byKey) || !slices.IsSortedFunc(sorted, byKey) || len(sorted) != len(s) {
			t.Fatalf("Slice made %v, Sorted %v", s, sorted)
		}
	}
}
