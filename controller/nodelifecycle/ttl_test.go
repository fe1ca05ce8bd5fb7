package nodelifecycle

import "testing"

func TestTTLStepsHaveHysteresis(t *testing.T) {
	seconds, step := []int{}, 0
	for _, nodes := range []int{0, 1, 100, 101, 95, 90, 89, 5000, 1900, 1799, 1000, 899, 460, 449, 0} {
		step = nextStep(step, nodes)
		seconds = append(seconds, ttlSteps()[step].seconds)
	}
	want := []int{0, 0, 0, 15, 15, 15, 0, 300, 300, 60, 60, 30, 30, 15, 0}
	for i, s := range seconds {
		if s != want[i] {
			t.Fatalf("the times are %v, want %v", seconds, want)
		}
	}
}
