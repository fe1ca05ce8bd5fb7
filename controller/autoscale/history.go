package autoscale

import (
	"math"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// defaultWindow is how long, unless an autoscaler says otherwise, the highest recommendation counts before a target is scaled
// down.
const defaultWindow = 5 * time.Minute

// memory is how long recommendations and changes are remembered: the API allows no longer stabilization window, and no longer
// period of a policy.
const memory = time.Hour

// A history is the recommendations for a target and its changes.
type history struct {
	recommended []moment // by the metrics
	ups, downs  []moment // by how many replicas the target was changed
}

// A moment is a number of replicas at one time.
type moment struct {
	replicas int32
	at       time.Time
}

// begin records the first known number of replicas as a recommendation.
func (h *history) begin(current int32, now time.Time) {
	if h.recommended == nil {
		h.recommended = []moment{{current, now}}
	}
}

func remember(list []moment, m moment) []moment {
	list = slices.DeleteFunc(slices.Clone(list), func(old moment) bool { return m.at.Sub(old.at) > memory })
	return append(list, m)
}

// recommend records the recommendation of the metrics now.
func (h *history) recommend(replicas int32, now time.Time) {
	h.recommended = remember(h.recommended, moment{replicas, now})
}

// changed records a change, which counts for the policies of a behavior.
func (h *history) changed(from, to int32, now time.Time) {
	if to > from {
		h.ups = remember(h.ups, moment{to - from, now})
	} else {
		h.downs = remember(h.downs, moment{from - to, now})
	}
}

// highest returns the highest recommendation of the default window.
func (h *history) highest(desired int32, now time.Time) int32 {
	for _, r := range h.recommended {
		if !r.at.Before(now.Add(-defaultWindow)) {
			desired = max(desired, r.replicas)
		}
	}
	return desired
}

// stabilize returns the number of replicas that is nearest to the present one and within the recommendations in the windows
// of a behavior: at least the lowest recommendation of that for scaling up, and at most the highest of that for scaling down.
func (h *history) stabilize(b *autoscalingv2.HorizontalPodAutoscalerBehavior, current, desired int32, now time.Time) int32 {
	up, down := now.Add(-window(b.ScaleUp, 0)), now.Add(-window(b.ScaleDown, defaultWindow))
	lowest, highest := desired, desired
	for _, r := range h.recommended {
		if r.at.After(up) {
			lowest = min(lowest, r.replicas)
		}
		if r.at.After(down) {
			highest = max(highest, r.replicas)
		}
	}
	return min(max(current, lowest), highest)
}

// window returns the stabilization window of rules.
func window(r *autoscalingv2.HPAScalingRules, otherwise time.Duration) time.Duration {
	if r == nil || r.StabilizationWindowSeconds == nil {
		return otherwise
	}
	return time.Duration(*r.StabilizationWindowSeconds) * time.Second
}

// before returns how many replicas there were a number of seconds ago, by the recorded changes.
func (h *history) before(current, seconds int32, now time.Time) int32 {
	since := now.Add(-time.Duration(seconds) * time.Second)
	for _, c := range h.ups {
		if c.at.After(since) {
			current -= c.replicas
		}
	}
	for _, c := range h.downs {
		if c.at.After(since) {
			current += c.replicas
		}
	}
	return current
}

// mostUp returns up to how many replicas the policies of rules allow now.
func (h *history) mostUp(r *autoscalingv2.HPAScalingRules, current int32, now time.Time) int32 {
	return h.limit(r, current, now, true)
}

// leastDown returns down to how many replicas the policies of rules allow now.
func (h *history) leastDown(r *autoscalingv2.HPAScalingRules, current int32, now time.Time) int32 {
	return h.limit(r, current, now, false)
}

func (h *history) limit(r *autoscalingv2.HPAScalingRules, current int32, now time.Time, up bool) int32 {
	selected := autoscalingv2.MaxChangePolicySelect
	if r.SelectPolicy != nil {
		selected = *r.SelectPolicy
	}
	if selected == autoscalingv2.DisabledPolicySelect {
		return current
	}
	highest := up == (selected != autoscalingv2.MinChangePolicySelect) // of the limits of all policies, or the lowest
	var limits []int32
	for _, p := range r.Policies {
		start, value := float64(h.before(current, p.PeriodSeconds, now)), float64(p.Value)
		percent := p.Type == autoscalingv2.PercentScalingPolicy
		switch {
		case up && percent:
			// Rounded up, or one replica could never become more by a small percentage.
			limits = append(limits, ceil(start*(1+value/100)))
		case up:
			limits = append(limits, ceil(start+value))
		case percent:
			limits = append(limits, int32(start*(1-value/100)))
		default:
			limits = append(limits, int32(max(start-value, math.MinInt32)))
		}
	}
	switch {
	case len(limits) == 0:
		return current
	case highest:
		return slices.Max(limits)
	}
	return slices.Min(limits)
}
