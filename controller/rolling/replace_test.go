package rolling_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/controller/rolling"
)

// TestPlanReplacementInvariants checks rolling-R1, R2 and R3 from any state, with pods
// that come, become ready and fail to in any order.
func TestPlanReplacementInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		desired := rapid.Int32Range(0, 8).Draw(t, "desired")
		surge := rapid.SampledFrom([]string{"0", "1", "50%"}).Draw(t, "surge")
		unavailable := rapid.SampledFrom([]string{"0", "1", "2", "25%"}).Draw(t, "unavailable")
		limits := limitsOf(desired, surge, unavailable)
		s := rolling.Replacement{Desired: desired, Limits: limits, Want: rapid.Int32Range(desired, limits.Max).Draw(t, "want")}
		for range rapid.Int32Range(0, s.Want).Draw(t, "pods") {
			s.Pods = append(s.Pods, rolling.OnePod{Old: rapid.Bool().Draw(t, "old"), Ready: rapid.Bool().Draw(t, "ready")})
		}
		s.Stop = rapid.Bool().Draw(t, "stop")
		ready := func() (n int32) {
			for _, p := range s.Pods {
				if p.Ready {
					n++
				}
			}
			return n
		}
		for steps := 0; ; steps++ {
			if steps > 2000 {
				t.Fatalf("it does not end: %+v", s)
			}
			before := ready()
			step := rolling.PlanReplacement(s)
			switch {
			case step.Want != s.Want:
				s.Want = step.Want
			case step.Delete >= 0:
				if !s.Pods[step.Delete].Old || s.Stop {
					t.Fatalf("pod %d is deleted in %+v", step.Delete, s)
				}
				s.Pods = append(s.Pods[:step.Delete:step.Delete], s.Pods[step.Delete+1:]...)
				if now := ready(); now < before && now < s.Min {
					t.Fatalf("%d pods are ready, want at least %d: %+v", now, s.Min, s)
				}
			case step.Why == "":
				for _, p := range s.Pods {
					if p.Old && !s.Stop {
						t.Fatalf("finished with an old pod: %+v", s)
					}
				}
				if int32(len(s.Pods)) != desired || s.Want != desired || !s.Stop && ready() != desired {
					t.Fatalf("finished in %+v, want %d pods", s, desired)
				}
				return
			}
			if int32(len(s.Pods)) > s.Max {
				t.Fatalf("%d pods, want at most %d: %+v", len(s.Pods), s.Max, s)
			}
			// The controller and the pods make a few of the pending changes.
			n := rapid.IntRange(0, 2).Draw(t, "cluster steps")
			if step.Why != "" {
				n = max(n, 1)
			}
			moved := false
			for range n {
				moved = controlReplaced(t, &s) || moved
			}
			if step.Why != "" && !moved {
				t.Fatalf("it waits (%s) and nothing can happen: %+v", step.Why, s)
			}
		}
	})
}

// controlReplaced makes or deletes a pod, or has one become ready, and reports
// whether there was anything to do.
func controlReplaced(t *rapid.T, s *rolling.Replacement) bool {
	var unready []int
	for i, p := range s.Pods {
		if !p.Ready {
			unready = append(unready, i)
		}
	}
	switch n := int32(len(s.Pods)); {
	case n > s.Want: // unready pods are deleted first
		i := rapid.IntRange(0, len(s.Pods)-1).Draw(t, "too many")
		if len(unready) > 0 {
			i = unready[0]
		}
		s.Pods = append(s.Pods[:i:i], s.Pods[i+1:]...)
	case n < s.Want && (len(unready) == 0 || rapid.Bool().Draw(t, "make one")):
		s.Pods = append(s.Pods, rolling.OnePod{})
	case len(unready) > 0:
		s.Pods[rapid.SampledFrom(unready).Draw(t, "becomes ready")].Ready = true
	default:
		return false
	}
	return true
}
