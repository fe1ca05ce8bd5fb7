package rollout

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/internal/plural"
)

// A Side has the numbers of one controller. Pods that are being deleted do not count, as with Deployments.
type Side struct {
	Want  int32 // replicas in the spec
	Pods  int32 // pods that exist, have not ended and are not being deleted
	Ready int32 // pods of these that have been ready for the minimum time
}

// A State is the input of [Plan]. From is the side that is scaled down, To the side that is scaled up.
type State struct {
	Desired int32 // pods of To in the end
	Rest    int32 // pods of From in the end: 0, except with canaries
	Limits
	From, To Side
}

// Limits are the bounds that an update keeps.
type Limits struct {
	Min int32 // ready pods at any time, if there are as many at the beginning
	Max int32 // pods at any time
}

// LimitsOf returns the limits for a number of desired pods. Percentages are of desired, rounded up for surge and down for
// unavailable, as Deployments do. It returns an error if both are 0, because then no pod could be replaced.
func LimitsOf(desired int32, surge, unavailable intstr.IntOrString) (Limits, error) {
	up, err := scaled("surge", surge, desired, true)
	if err != nil {
		return Limits{}, err
	}
	down, err := scaled("unavailable", unavailable, desired, false)
	if err != nil {
		return Limits{}, err
	}
	if up == 0 && down == 0 {
		if isZero(surge) && isZero(unavailable) {
			return Limits{}, errors.New("one of surge and unavailable must be more than 0, or no pod could ever be replaced")
		}
		down = 1 // percentages of few pods
	}
	return Limits{Min: max(0, desired-down), Max: desired + up}, nil
}

func isZero(v intstr.IntOrString) bool {
	return v.Type == intstr.Int && v.IntVal == 0 || v.Type == intstr.String && v.StrVal == "0%"
}

func scaled(name string, v intstr.IntOrString, of int32, up bool) (int32, error) {
	n, err := intstr.GetScaledValueFromIntOrPercent(&v, int(of), up)
	if err != nil {
		return 0, fmt.Errorf("%s %q: want a number or a percentage", name, v.String())
	}
	if n < 0 || n > 1<<30 {
		return 0, fmt.Errorf("%s %s: want 0 or more", name, v.String())
	}
	return int32(n), nil
}

// A Kind is what a step does.
type Kind int

// The kinds of steps.
const (
	Wait     Kind = iota // wait for a change
	SetTo                // set To to Replicas
	SetFrom              // set From to Replicas
	Finished             // nothing is left to do
)

func (k Kind) String() string {
	switch k {
	case Wait:
		return "wait"
	case SetTo:
		return "set new"
	case SetFrom:
		return "set old"
	case Finished:
		return "finished"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// A Step is what to do next.
type Step struct {
	Kind     Kind
	Replicas int32  // for SetTo and SetFrom
	Why      string // for Wait
}

// Plan returns the next step. See R1 to R3 in the package comment.
func Plan(s State) Step {
	exist := max(s.From.Want, s.From.Pods) + max(s.To.Want, s.To.Pods)
	switch room := s.Max - exist; {
	case s.To.Want > s.Desired:
		return Step{Kind: SetTo, Replicas: s.Desired} // the desired number was reduced
	case s.To.Want < s.Desired && room > 0:
		return Step{Kind: SetTo, Replicas: min(s.Desired, s.To.Want+room)}
	}
	// A controller that is scaled down deletes unready pods first. So From keeps as many pods as To lacks, however many
	// of From's own are ready.
	if keep := max(s.Rest, s.Min-min(s.To.Ready, s.To.Want)); keep < s.From.Want {
		return Step{Kind: SetFrom, Replicas: keep}
	}
	switch {
	case s.To.Ready < s.To.Want:
		return Step{Kind: Wait, Why: fmt.Sprintf("%d of %d new pods ready", s.To.Ready, s.To.Want)}
	case s.From.Pods > s.From.Want:
		return Step{Kind: Wait, Why: leaving(s.From.Pods - s.From.Want)}
	case s.To.Pods != s.To.Want:
		return Step{Kind: Wait, Why: fmt.Sprintf("%s, want %d", plural.Count(s.To.Pods, "new pod"), s.To.Want)}
	case s.From.Want > s.Rest || s.To.Want < s.Desired:
		return Step{Kind: Wait, Why: "the limits allow neither to delete a pod nor to create one"} // only limits that LimitsOf refuses
	}
	return Step{Kind: Finished}
}

// leaving returns why a step waits for the deletion of old pods.
func leaving(n int32) string {
	return fmt.Sprintf("%s %s not deleted yet", plural.Count(n, "old pod"), plural.Choose(n, "is", "are"))
}
