package resource

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxNear is how many suggestions a message makes.
const maxNear = 3

func didYouMean(near []string) string {
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near, " or ") + "?"
}

// kindsNear returns suggestions for a kind that is not served: the same kind in another
// version or group first, then kinds with similar names. It only suggests kinds of the
// server's discovery.
func (m *Mapper) kindsNear(ctx context.Context, kind schema.GroupVersionKind) []string {
	var same, near []string
	for r := range m.Served(ctx) {
		text := r.Kind + " in " + r.GroupVersion().String()
		switch {
		case strings.EqualFold(r.Kind, kind.Kind):
			same = append(same, text)
		case Alike(r.Kind, kind.Kind):
			near = append(near, text)
		}
	}
	if len(same) > 0 {
		near = same
	}
	return near[:min(len(near), maxNear)]
}

// typesNear returns names of resources that are spelled much like a word.
func (m *Mapper) typesNear(ctx context.Context, word string) []string {
	var near []string
	for r := range m.Served(ctx) {
		name := r.Resource
		if r.Group != "" {
			name += "." + r.Group
		}
		if (Alike(r.Resource, word) || Alike(r.Singular, word)) && !slices.Contains(near, name) {
			near = append(near, name)
		}
	}
	return near[:min(len(near), maxNear)]
}

// Served yields all resources in the server's discovery, the server's preferred versions of a group first. It yields none
// if the server cannot be asked, and leaves out groups whose servers are down.
func (m *Mapper) Served(ctx context.Context) func(yield func(Mapping) bool) {
	return func(yield func(Mapping) bool) {
		if m.load(ctx) != nil {
			return
		}
		for _, gv := range append([]schema.GroupVersion{core}, m.groups...) {
			served, err := m.version(ctx, gv)
			if err != nil {
				continue // a group whose server is down
			}
			for _, r := range served {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Alike reports whether a person may have written b for a: one slip in a short word,
// two in a longer one.
func Alike(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if len(b) < 3 || a == "" {
		return false
	}
	slips := 1
	if len(b) > 5 {
		slips = 2
	}
	return distance(a, b) <= slips
}

// distance is how many letters are to be put in, left out, replaced or swapped with
// their neighbour to make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
