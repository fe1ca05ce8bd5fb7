package rolling

import (
	"fmt"

	"github.com/sampan-io/sampan/internal/plural"
)

// A Replacement is the input of [PlanReplacement]: one controller whose pods are deleted and made again.
type Replacement struct {
	Desired int32 // pods in the end
	Limits
	Want int32    // replicas in the controller's spec
	Pods []OnePod // pods that exist, have not ended and are not being deleted
	Stop bool     // replace no more pods, and go back to Desired
}

// OnePod is a pod of a [Replacement].
type OnePod struct {
	Old   bool // it has to be replaced
	Ready bool // as [Side.Ready] counts
}

// A ReplaceStep is the next step.
type ReplaceStep struct {
	Want   int32  // replicas
	Delete int    // index of the pod to delete, which the controller then replaces; -1 for none
	Why    string // the reason that the replacement waits, if there is nothing to do; empty if it is complete
}

// PlanReplacement returns the next step of a replacement.
func PlanReplacement(s Replacement) ReplaceStep {
	var olds, ready, fresh, freshReady int32
	broken, good := -1, -1
	for i, p := range s.Pods {
		if p.Ready {
			ready++
		}
		switch {
		case !p.Old:
			fresh++
			if p.Ready {
				freshReady++
			}
			continue
		case p.Ready && good < 0:
			good = i
		case !p.Ready && broken < 0:
			broken = i
		}
		olds++
	}
	pods := int32(len(s.Pods))
	step := ReplaceStep{Want: s.Want, Delete: -1}
	if s.Stop || olds == 0 {
		switch {
		case s.Want != s.Desired:
			step.Want = s.Desired
		case !s.Stop && ready < s.Desired:
			step.Why = fmt.Sprintf("%d of %d new pods ready", ready, s.Desired)
		case pods != s.Desired:
			step.Why = fmt.Sprintf("%s, want %d", plural.Count(pods, "pod"), s.Desired)
		}
		return step
	}
	switch {
	case s.Want != s.Max:
		step.Want = s.Max
	case broken >= 0 && pods >= s.Want && freshReady == fresh:
		// It costs no capacity. Replace one at a time, because the new pod may be broken, too.
		step.Delete = broken
	case good >= 0 && ready > s.Min:
		step.Delete = good
	case pods < s.Want:
		step.Why = fmt.Sprintf("%d of %d pods are there", pods, s.Want)
	default:
		step.Why = fmt.Sprintf("%d of %d new pods ready, %s to go", freshReady, fresh, plural.Count(olds, "old one"))
	}
	return step
}
