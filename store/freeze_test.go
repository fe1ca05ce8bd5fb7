package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sampan-io/sampan/store"
)

// frozenKeys returns the keys and revisions of a frozen store.
func frozenKeys(f *store.Frozen) (all []string) {
	for rec := range f.All() {
		all = append(all, fmt.Sprintf("%s@%d", rec.Key, rec.Revision))
	}
	return all
}

func TestFreezeKeepsOneRevision(t *testing.T) {
	s := running(t, nowhere{})
	put := func(key string, expect store.Revision, del bool) store.Revision {
		t.Helper()
		rec, err := s.Commit(t.Context(), store.Write{Key: key, Value: blob{1}, Expect: expect, Delete: del})
		if err != nil {
			t.Fatal(err)
		}
		return rec.Revision
	}
	if f := s.Freeze(); f.Len() != 0 || frozenKeys(f) != nil {
		t.Errorf("an empty store has %d frozen records", f.Len())
	}
	a := put("pods/a", 0, false)
	b := put("pods/b", 0, false)
	put("pods.x/a", 0, false)
	put("pods-x/a", 0, false)
	f := s.Freeze()
	want := []string{"pods-x/a@4", "pods.x/a@3", "pods/a@1", "pods/b@2"} // in the order of keys
	check := func(when string) {
		t.Helper()
		if got := frozenKeys(f); !slices.Equal(got, want) || f.Len() != 4 || f.Revision != 4 {
			t.Errorf("%s: got %v at %d, want %v at 4", when, got, f.Revision, want)
		}
	}
	check("at once")
	put("pods/a", a, true)
	put("pods/b", b, false)
	put("pods/c", 0, false)
	put("nodes/a", 0, false)
	check("after writes")
	if got := frozenKeys(s.Freeze()); len(got) != 5 || s.Freeze().Revision != 8 {
		t.Errorf("frozen again: %v", got)
	}
	for range f.All() {
		break // it can be left
	}
}

// What a freeze costs the writers that it holds up does not depend on the number of records.
func TestFreezeIsNoCopy(t *testing.T) {
	s := running(t, nowhere{})
	cost := func() float64 {
		return testing.AllocsPerRun(20, func() {
			if _, err := s.Commit(t.Context(), store.Write{Key: fmt.Sprintf("other/%d", s.Revision()), Value: blob{1}, Volatile: true}); err != nil {
				t.Error(err)
			}
			s.Freeze()
		})
	}
	fill(t, s, 10)
	few := cost()
	for i := range 10000 {
		if _, err := s.Commit(t.Context(), store.Write{Key: fmt.Sprintf("more/%06d", i), Value: blob{byte(i)}, Volatile: true}); err != nil {
			t.Fatal(err)
		}
	}
	if many := cost(); many > few+10 {
		t.Errorf("a freeze of 10,000 records allocates %v times, of 10 records %v times", many, few)
	}
}
