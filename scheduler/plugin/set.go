package plugin

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/sampan-io/sampan/internal/sorting"
)

// Points is a set of extension points.
type Points uint16

// The points, in the order in which they are called for a pod. A point includes the one that prepares it: a plug-in that
// has only a PreFilter is called at AtFilter through its Check, and one that has only a PreScore at AtScore.
const (
	AtQueueSort Points = 1 << iota
	AtPreEnqueue
	AtPreFilter
	AtFilter
	AtPostFilter
	AtPreScore
	AtScore
	AtReserve
	AtPermit
	AtPreBind
	AtBind
	AtPostBind
	end

	// Everywhere is all points that a plug-in implements.
	Everywhere = end - 1
)

var pointNames = [...]string{"queueSort", "preEnqueue", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit", "preBind", "bind", "postBind"}

// String names the points as KubeSchedulerConfiguration does: "preFilter,filter".
func (p Points) String() string {
	var names []string
	for i, name := range pointNames {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// Each calls f with each single point of p, in order.
func (p Points) Each(f func(Points)) {
	for ; p != 0; p &= p - 1 {
		f(1 << bits.TrailingZeros16(uint16(p)))
	}
}

// PointsOf returns the points at which a plug-in has something to say.
func PointsOf(p Plugin) Points {
	var at Points
	mark := func(has bool, points Points) {
		if has {
			at |= points
		}
	}
	_, ok := p.(QueueSort)
	mark(ok, AtQueueSort)
	_, ok = p.(PreEnqueue)
	mark(ok, AtPreEnqueue)
	_, ok = p.(PreFilter)
	mark(ok, AtPreFilter|AtFilter)
	_, ok = p.(Filter)
	mark(ok, AtFilter)
	_, ok = p.(PostFilter)
	mark(ok, AtPostFilter)
	_, ok = p.(PreScore)
	mark(ok, AtPreScore|AtScore)
	_, ok = p.(Score)
	mark(ok, AtScore)
	_, ok = p.(Reserve)
	mark(ok, AtReserve)
	_, ok = p.(Permit)
	mark(ok, AtPermit)
	_, ok = p.(PreBind)
	mark(ok, AtPreBind)
	_, ok = p.(Bind)
	mark(ok, AtBind)
	_, ok = p.(PostBind)
	mark(ok, AtPostBind)
	return at
}

// An Entry is a plug-in of a set, with where it is enabled and how much it counts.
type Entry struct {
	Plugin

	// Only are the points at which it is enabled, which it must implement; 0 means Everywhere.
	Only Points

	// Weight is how much its score counts, from 1 to MaxWeight; 0 means 1.
	Weight int64
}

// MaxWeight is the most that a score may count, so that no sum of scores overflows.
const MaxWeight = 1 << 40

// Points returns the points at which the entry is called.
func (e Entry) Points() Points {
	if e.Only == 0 {
		return PointsOf(e.Plugin)
	}
	return e.Only & PointsOf(e.Plugin)
}

// A Set is a scheduler's plug-ins in the order in which they are
// asked. The zero Set lets every pod run everywhere, takes pods in the order in
// which they came and binds them itself.
type Set struct {
	Entries []Entry

	// Order names, for a point, plug-ins that go before the others there, in their order.
	Order map[Points][]string
}

// At returns the entries that are enabled at a point, in the order in which they are asked there.
func (s Set) At(point Points) []Entry {
	var at []Entry
	for _, e := range s.Entries {
		if e.Plugin != nil && e.Points()&point != 0 {
			at = append(at, e)
		}
	}
	if first := s.Order[point]; len(first) > 0 {
		rank := func(e Entry) int {
			if i := slices.Index(first, e.Name()); i >= 0 {
				return i
			}
			return len(first)
		}
		sorting.Stable(at, func(a, b Entry) int { return rank(a) - rank(b) })
	}
	return at
}

// Find returns the index of the plug-in of that name in Entries, or -1.
func (s Set) Find(name string) int {
	return slices.IndexFunc(s.Entries, func(e Entry) bool { return e.Plugin != nil && e.Name() == name })
}

// With returns the set with more entries at its end. An entry whose plug-in's name
// is in the set already takes that one's place.
func (s Set) With(entries ...Entry) Set {
	s.Entries = slices.Clone(s.Entries)
	for _, e := range entries {
		if e.Plugin != nil {
			if i := s.Find(e.Name()); i >= 0 {
				s.Entries[i] = e
				continue
			}
		}
		s.Entries = append(s.Entries, e)
	}
	return s
}

// Without returns the set without the plug-ins of these names.
func (s Set) Without(names ...string) Set {
	s.Entries = slices.DeleteFunc(slices.Clone(s.Entries), func(e Entry) bool {
		return e.Plugin != nil && slices.Contains(names, e.Name())
	})
	return s
}

// Validate reports everything that is wrong with the set, not only the first.
func (s Set) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	seen := map[string]bool{}
	for i, e := range s.Entries {
		if e.Plugin == nil {
			fault("plug-in %d is nil", i)
			continue
		}
		name := e.Name()
		switch {
		case name == "":
			fault("plug-in %d, a %T, has no name", i, e.Plugin)
		case seen[name]:
			fault("plug-in %q is listed twice", name)
		}
		seen[name] = true
		if faults := methodsOf(e.Plugin); len(faults) > 0 {
			for _, err := range faults {
				fault("plug-in %q (%T): %w", name, e.Plugin, err)
			}
			continue // the points that it implements follow from the methods
		}
		has := PointsOf(e.Plugin)
		if has == 0 {
			fault("plug-in %q implements no extension point", name)
		}
		if lacks := e.Only &^ has; lacks != 0 {
			fault("plug-in %q is enabled at %v, which it does not implement", name, lacks)
		}
		if _, own := e.Plugin.(Filter); !own && e.Points()&(AtPreFilter|AtFilter) == AtFilter {
			fault("plug-in %q is enabled at filter, but not at preFilter, where its check comes from", name)
		}
		if _, own := e.Plugin.(Score); !own && e.Points()&(AtPreScore|AtScore) == AtScore {
			fault("plug-in %q is enabled at score, but not at preScore, where its scorer comes from", name)
		}
		if e.Weight < 0 || e.Weight > MaxWeight {
			fault("plug-in %q has weight %d, want from 1 to %d, or 0 for 1", name, e.Weight, int64(MaxWeight))
		}
	}
	if sorts := s.At(AtQueueSort); len(sorts) > 1 {
		var names []string
		for _, e := range sorts {
			names = append(names, fmt.Sprintf("%q", e.Name()))
		}
		fault("plug-ins %s are all enabled at queueSort, want one", strings.Join(names, ", "))
	}
	for point, names := range s.Order {
		if bits.OnesCount16(uint16(point)) != 1 || point >= end {
			fault("the order of %q is given, want that of one point", point)
		}
		for _, name := range names {
			if !seen[name] {
				fault("the order of %v names plug-in %q, which is not in the set", point, name)
			}
		}
	}
	sorting.Slice(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
