package rolling

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/internal/plural"
)

// Limits are the bounds that an update keeps.
type Limits struct {
	Min int32 // ready pods at any time, if there are as many at the beginning
	Max int32 // pods at any time
}

// LimitsOf returns the limits for a number of desired pods. Percentages are of desired, rounded up for surge and down for
// unavailable. If both are 0, one pod may be unavailable, because otherwise no pod could be replaced.
func LimitsOf(desired int32, surge, unavailable *intstr.IntOrString) Limits {
	up, down := Share(surge, desired, true), Share(unavailable, desired, false)
	if up == 0 && down == 0 {
		down = 1
	}
	return Limits{Min: max(0, desired-down), Max: desired + min(up, math.MaxInt32-desired)}
}

// Share returns a number, or a percentage of all, rounded up or down. It returns 0 for nil, and for text that is not a
// percentage.
func Share(v *intstr.IntOrString, all int32, up bool) int32 {
	if v == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(v, int(all), up)
	if err != nil {
		return 0 // the callers have checked it
	}
	return int32(min(n, math.MaxInt32))
}

// A Side has the numbers of the old or of the new pods. Pods that are being deleted do not count.
type Side struct {
	Want  int32 // replicas in the spec
	Pods  int32 // pods that exist, have not ended and are not being deleted
	Ready int32 // pods of these that have been ready for the minimum time
}

// A State is the input of [Plan]. From is the side that is scaled down, To the side that is scaled up.
type State struct {
	Desired  int32 // pods in the end
	Canaries int32 // stop at this number of pods of To, with as many fewer of From; 0 means to go on to the end
	Limits
	From, To Side
}

// A Step is the next step: the replicas of both sides, which may be set in any order or only one of them.
type Step struct {
	To, From int32
	Why      string // the reason that the update waits, if both sides have their replicas; empty if it is complete
}

// Plan returns the next step. It never changes a number of canaries that are more already.
func Plan(s State) Step {
	last := s.Desired
	if s.Canaries > 0 {
		last = min(s.Desired, max(s.Canaries, s.To.Want))
	}
	rest := s.Desired - last
	room := s.Max - max(s.From.Want, s.From.Pods) - max(s.To.Want, s.To.Pods)
	to := min(last, s.To.Want+max(0, room))
	// A controller that is scaled down deletes unready pods first. So From keeps as many pods as To lacks, however many
	// of From's own are ready.
	from := min(s.From.Want, max(rest, s.Min-min(s.To.Ready, to)))
	step := Step{To: to, From: from}
	switch {
	case to != s.To.Want || from != s.From.Want:
	case s.To.Ready < s.To.Want:
		step.Why = fmt.Sprintf("%d of %d new pods ready", s.To.Ready, s.To.Want)
	case s.From.Pods > s.From.Want:
		n := s.From.Pods - s.From.Want
		step.Why = fmt.Sprintf("%s %s not deleted yet", plural.Count(n, "old pod"), plural.Choose(n, "is", "are"))
	case s.To.Pods != s.To.Want:
		step.Why = fmt.Sprintf("%s, want %d", plural.Count(s.To.Pods, "new pod"), s.To.Want)
	case from > rest || to < last:
		step.Why = "the limits allow neither to delete a pod nor to create one" // not with limits of LimitsOf
	}
	return step
}
