package rollout

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/internal/plural"
)

// A Side is what one controller has. Pods that are being deleted are on no side:
// they are neither capacity nor do they take up room, as with Deployments.
type Side struct {
	Want  int32 // replicas asked for
	Pods  int32 // pods that exist, have not ended and are not being deleted
	Ready int32 // those of them that are ready, and have been for as long as is asked for
}

// A State is everything that [Plan] looks at. From is the side that is emptied, To
// the one that is filled.
type State struct {
	Desired int32 // pods of To in the end
	Rest    int32 // pods of From in the end: none, but beside canaries
	Limits
	From, To Side
}

// Limits are the bounds that an update keeps.
type Limits struct {
	Min int32 // ready pods at any time, as far as there are as many to begin with
	Max int32 // pods at any time
}

// LimitsOf computes the limits for a number of desired pods. A percentage is of
// desired; of surge it is rounded up, of unavailable down, as Deployments do. Not
// both may come to nothing, or no step could be taken.
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
	Wait     Kind = iota // nothing can be done before something changes
	SetTo                // set To to Replicas
	SetFrom              // set From to Replicas
	Finished             // all is as it shall be
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
	Replicas int32  // of scale steps
	Why      string // of Wait
}

// Plan returns the next step. See R1 to R3 in the package comment.
func Plan(s State) Step {
	exist := max(s.From.Want, s.From.Pods) + max(s.To.Want, s.To.Pods)
	switch room := s.Max - exist; {
	case s.To.Want > s.Desired:
		return Step{Kind: SetTo, Replicas: s.Desired} // somebody changed his mind
	case s.To.Want < s.Desired && room > 0:
		return Step{Kind: SetTo, Replicas: min(s.Desired, s.To.Want+room)}
	}
	// A controller that must lose pods loses those first that are not ready. So
	// what From needs to keep is what To is short of, however many of From's own
	// are ready.
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
		return Step{Kind: Wait, Why: "no pod may go and none may come"} // only limits that LimitsOf refuses
	}
	return Step{Kind: Finished}
}

// leaving is why a step waits until old pods have gone.
func leaving(n int32) string {
	return fmt.Sprintf("%s %s still to go", plural.Count(n, "old pod"), plural.Choose(n, "is", "are"))
}
