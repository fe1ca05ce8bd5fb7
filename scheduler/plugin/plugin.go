package plugin

import (
	"errors"
	"fmt"
)

// A Verdict is a filter's answer. The zero Verdict means that the pod fits.
type Verdict struct {
	Refusal string   // why not, in words for the pod's event (P3); empty means it fits
	Also    []string // further reasons, each counted by itself
	Final   bool     // the answer would be the same if the node had no other pods
}

// Fits reports whether v lets the pod through.
func (v Verdict) Fits() bool { return v.Refusal == "" }

// A Filter rules nodes out.
type Filter interface {
	// Name is what the plug-in is called in KubeSchedulerConfiguration, if
	// upstream has it ("NodePorts").
	Name() string

	// Filter says whether the node may run the pod.
	Filter(pod *Pod, node *Node) Verdict
}

// MaxScore is the best score that a Scorer gives.
const MaxScore = 100

// A Scorer ranks nodes.
type Scorer interface {
	Name() string

	// Score writes a score from 0 to MaxScore for each node into scores, which
	// is as long as nodes. It sees all candidates at once so that it can
	// compare them.
	Score(pod *Pod, nodes []*Node, scores []int64)
}

// A Weighted is a scorer and how much it counts.
type Weighted struct {
	Scorer
	Weight int64 // at least 1
}

// A Set is what a scheduler decides with. The empty Set lets every pod run
// everywhere.
type Set struct {
	// Filters are asked in this order. The first refusal ends the matter for a
	// node and is the one that users read.
	Filters []Filter
	Scorers []Weighted
}

// Validate reports everything that is wrong with the set, not only the first.
func (s Set) Validate() error {
	var errs []error
	seen := map[string]bool{}
	for _, f := range s.Filters {
		if seen[f.Name()] {
			errs = append(errs, fmt.Errorf("filter %q is listed twice", f.Name()))
		}
		seen[f.Name()] = true
	}
	clear(seen)
	for _, w := range s.Scorers {
		if seen[w.Name()] {
			errs = append(errs, fmt.Errorf("scorer %q is listed twice", w.Name()))
		}
		seen[w.Name()] = true
		if w.Weight < 1 {
			errs = append(errs, fmt.Errorf("scorer %q has weight %d, want at least 1", w.Name(), w.Weight))
		}
	}
	return errors.Join(errs...)
}
