package autoscale

import (
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// ago makes moments of pairs: replicas, and how many seconds ago.
func ago(pairs ...int32) (out []moment) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, moment{pairs[i], noon.Add(-time.Duration(pairs[i+1]) * time.Second)})
	}
	return out
}

func policy(kind autoscalingv2.HPAScalingPolicyType, value, seconds int32) autoscalingv2.HPAScalingPolicy {
	return autoscalingv2.HPAScalingPolicy{Type: kind, Value: value, PeriodSeconds: seconds}
}

func TestPolicies(t *testing.T) {
	const podsPolicy, percent = autoscalingv2.PodsScalingPolicy, autoscalingv2.PercentScalingPolicy
	const most, least, none = autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect, autoscalingv2.DisabledPolicySelect
	both := []autoscalingv2.HPAScalingPolicy{policy(podsPolicy, 4, 60), policy(percent, 50, 60)}
	for _, tt := range []struct {
		name     string
		selected autoscalingv2.ScalingPolicySelect
		policies []autoscalingv2.HPAScalingPolicy
		current  int32
		history  history
		up, down int32
	}{
		{name: "pods", selected: most, policies: both[:1], current: 10, up: 14, down: 6},
		{name: "percent", selected: most, policies: both[1:], current: 10, up: 15, down: 5},
		{name: "percent, rounded", selected: most, policies: []autoscalingv2.HPAScalingPolicy{policy(percent, 10, 60)}, current: 1, up: 2, down: 0},
		{name: "percent, as floating point has it", selected: most, policies: []autoscalingv2.HPAScalingPolicy{policy(percent, 10, 60)}, current: 110, up: 122, down: 99},
		{name: "the most of both", selected: most, policies: both, current: 10, up: 15, down: 5},
		{name: "the least of both", selected: least, policies: both, current: 10, up: 14, down: 6},
		{name: "the most of few", selected: most, policies: both, current: 2, up: 6, down: -2},
		{name: "disabled", selected: none, policies: both, current: 10, up: 10, down: 10},
		{name: "changed in the period", selected: most, policies: both[:1], current: 13, history: history{ups: ago(3, 59)}, up: 14, down: 6},
		{name: "changed before the period", selected: most, policies: both[:1], current: 13, history: history{ups: ago(3, 60)}, up: 17, down: 9},
		{name: "up and down in the period", selected: most, policies: both[1:], current: 9, history: history{ups: ago(2, 50, 1, 30), downs: ago(4, 40, 9, 99)}, up: 15, down: 5},
		{name: "more than allowed", selected: most, policies: both[:1], current: 20, history: history{ups: ago(10, 10)}, up: 14, down: 6},
		{name: "periods of their own", selected: most, policies: []autoscalingv2.HPAScalingPolicy{policy(podsPolicy, 2, 15), policy(podsPolicy, 5, 60)}, current: 10, history: history{ups: ago(5, 30)}, up: 12, down: 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &autoscalingv2.HPAScalingRules{SelectPolicy: &tt.selected, Policies: tt.policies}
			if got := tt.history.mostUp(r, tt.current, noon); got != tt.up {
				t.Errorf("up to %d, want %d", got, tt.up)
			}
			if got := tt.history.leastDown(r, tt.current, noon); got != tt.down {
				t.Errorf("down to %d, want %d", got, tt.down)
			}
		})
	}
}

func TestStabilization(t *testing.T) {
	for _, tt := range []struct {
		name             string
		history          history
		up, down         int32 // windows
		current, desired int32
		want             int32
	}{
		{"nothing is known", history{}, 0, 300, 5, 9, 9},
		{"down at once without a window", history{recommended: ago(9, 10)}, 0, 0, 9, 2, 2},
		{"the highest of the window", history{recommended: ago(9, 400, 6, 200, 4, 100)}, 0, 300, 9, 2, 6},
		{"the edge of the window is outside", history{recommended: ago(6, 300)}, 0, 300, 9, 2, 2},
		{"up at once without a window", history{recommended: ago(1, 5)}, 0, 300, 2, 9, 9},
		{"the lowest of the window", history{recommended: ago(2, 100, 4, 50, 6, 10)}, 60, 300, 3, 9, 4},
		{"no higher than recommended", history{recommended: ago(3, 10)}, 60, 300, 3, 9, 3},
		{"it stays between the two", history{recommended: ago(2, 10, 8, 20)}, 60, 60, 5, 6, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &autoscalingv2.HorizontalPodAutoscalerBehavior{
				ScaleUp:   &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &tt.up},
				ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &tt.down},
			}
			if got := tt.history.stabilize(b, tt.current, tt.desired, noon); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
	h := history{recommended: ago(9, 301, 6, 300, 4, 10)}
	if got := h.highest(2, noon); got != 6 {
		t.Errorf("without a behavior: %d, want 6", got)
	}
}

// TestHistoryIsBounded checks that what no rule can refer to is not kept, and that an older value of a history does not change.
func TestHistoryIsBounded(t *testing.T) {
	var h history
	h.begin(3, noon)
	h.begin(4, noon)
	if len(h.recommended) != 1 || h.recommended[0].replicas != 3 {
		t.Errorf("begun with %v", h.recommended)
	}
	for i := range 10_000 {
		now := noon.Add(time.Duration(i) * period)
		h.recommend(int32(i), now)
		h.changed(1, int32(i%3), now)
	}
	if n := len(h.recommended) + len(h.ups) + len(h.downs); n > 2*int(memory/period)+10 {
		t.Errorf("%d moments are kept", n)
	}
}
