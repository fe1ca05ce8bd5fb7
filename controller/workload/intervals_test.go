package workload

import "testing"

// FuzzIntervals checks that a set can be read as it was written, and that adding to it
// adds that and nothing else.
func FuzzIntervals(f *testing.F) {
	for _, seed := range []string{"", "0", "1,3-5,7", "0-2,3", "5-1", "a"} {
		f.Add(seed, 4)
	}
	f.Fuzz(func(t *testing.T, text string, i int) {
		set := parseIntervals(text)
		if again := parseIntervals(set.String()); again.String() != set.String() {
			t.Fatalf("%q → %q → %q", text, set, again)
		}
		if i < 0 || i > 1<<30 || len(set) > 0 && (set[0][0] < 0 || set[len(set)-1][1] > 1<<30) {
			return
		}
		grown := set.with(i)
		want := set.len()
		if !set.has(i) {
			want++
		}
		if !grown.has(i) || grown.len() != want || parseIntervals(grown.String()).String() != grown.String() {
			t.Errorf("%q with %d is %q", set, i, grown)
		}
	})
}
