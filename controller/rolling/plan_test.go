package rolling_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/controller/rolling"
	"github.com/sampan-io/sampan/internal/storytest"
)

// TestPlan plays the stories in testdata/*.txt. "update FROM to TO surge=S
// unavailable=U" is played to its end, each new pod becoming ready at once; "state"
// asks for one step. Run with -update after a change, then read the diff.
func TestPlan(t *testing.T) {
	storytest.Play(t, "testdata", func(t *testing.T) func(string) []string {
		return func(line string) []string { return answer(t, line) }
	})
}

func answer(t *testing.T, line string) []string {
	var (
		from, to           int32
		surge, unavailable string
		s                  rolling.State
	)
	switch {
	case strings.HasPrefix(line, "update "):
		if _, err := fmt.Sscanf(line, "update %d to %d surge=%s unavailable=%s", &from, &to, &surge, &unavailable); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		s = rolling.State{Desired: to, Limits: limitsOf(to, surge, unavailable), From: rolling.Side{Want: from, Pods: from, Ready: from}}
		told := fmt.Sprintf("keep %d, don't exceed %d:", s.Min, s.Max)
		for {
			switch step := rolling.Plan(s); {
			case step.To != s.To.Want:
				s.To = rolling.Side{Want: step.To, Pods: step.To, Ready: step.To}
				told += fmt.Sprintf(" new %d", step.To)
			case step.From != s.From.Want:
				s.From = rolling.Side{Want: step.From, Pods: step.From, Ready: step.From}
				told += fmt.Sprintf(" old %d", step.From)
			case step.Why != "":
				t.Fatalf("%q: %s", line, step.Why)
			default:
				return []string{told}
			}
		}
	case strings.HasPrefix(line, "state "):
		if _, err := fmt.Sscanf(line, "state desired=%d min=%d max=%d old=%d/%d/%d new=%d/%d/%d",
			&s.Desired, &s.Min, &s.Max, &s.From.Want, &s.From.Pods, &s.From.Ready, &s.To.Want, &s.To.Pods, &s.To.Ready); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		var told []string
		step := rolling.Plan(s)
		if step.To != s.To.Want {
			told = append(told, fmt.Sprintf("set new to %d", step.To))
		}
		if step.From != s.From.Want {
			told = append(told, fmt.Sprintf("set old to %d", step.From))
		}
		if step.Why != "" {
			told = append(told, "wait: "+step.Why)
		}
		if told == nil {
			told = []string{"finished"}
		}
		return told
	}
	return nil
}

// model is a cluster in which an update goes on: pods of both sides, each ready or
// not, and some that are being deleted.
type model struct {
	s        rolling.State
	from, to side
}

type side struct{ want, ready, unready, dying int32 }

func (m *model) state() rolling.State {
	m.s.From = rolling.Side{Want: m.from.want, Pods: m.from.ready + m.from.unready, Ready: m.from.ready}
	m.s.To = rolling.Side{Want: m.to.want, Pods: m.to.ready + m.to.unready, Ready: m.to.ready}
	return m.s
}

// control does one thing of what a replication controller and its pods do, and
// reports whether there was anything to do.
func (s *side) control(choice int) bool {
	switch pods := s.ready + s.unready; {
	case choice%3 == 0 && s.dying > 0:
		s.dying--
	case choice%3 == 1 && s.unready > 0 && pods <= s.want:
		s.unready--
		s.ready++
	case pods < s.want:
		s.unready++
	case pods > s.want && s.unready > 0: // unready pods are deleted first
		s.unready--
		s.dying++
	case pods > s.want:
		s.ready--
		s.dying++
	case s.unready > 0:
		s.unready--
		s.ready++
	case s.dying > 0:
		s.dying--
	default:
		return false
	}
	return true
}

func (m *model) check(t *rapid.T, what string, readyBefore int32) {
	ready := m.from.ready + m.to.ready
	if ready < readyBefore && ready < m.s.Min {
		t.Fatalf("after %s: %d ready pods, want at least %d: %+v", what, ready, m.s.Min, *m)
	}
	if pods := m.from.ready + m.from.unready + m.to.ready + m.to.unready; pods > m.s.Max {
		t.Fatalf("after %s: %d pods, want at most %d: %+v", what, pods, m.s.Max, *m)
	}
}

// TestPlanInvariants checks rolling-R1, R2 and R3 from any state that lies within
// the maximum, with pods that come, become ready and go in any order.
func TestPlanInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		desired := rapid.Int32Range(0, 12).Draw(t, "desired")
		surge := rapid.SampledFrom([]string{"0", "1", "3", "30%", "100%"}).Draw(t, "surge")
		unavailable := rapid.SampledFrom([]string{"0", "1", "2", "25%", "100%"}).Draw(t, "unavailable")
		limits := limitsOf(desired, surge, unavailable)
		m := &model{s: rolling.State{Desired: desired, Limits: limits}}
		m.from.want = rapid.Int32Range(0, limits.Max).Draw(t, "old")
		m.to.want = rapid.Int32Range(0, min(desired, limits.Max-m.from.want)).Draw(t, "new")
		m.from.ready = rapid.Int32Range(0, m.from.want).Draw(t, "old ready")
		m.to.ready = rapid.Int32Range(0, m.to.want).Draw(t, "new ready")
		m.s.Canaries = rapid.Int32Range(0, desired).Draw(t, "canaries")
		last := desired
		if m.s.Canaries > 0 {
			last = max(m.s.Canaries, m.to.want) // existing ones are kept
		}
		for steps := 0; ; steps++ {
			if steps > 5000 {
				t.Fatalf("it does not end: %+v", *m)
			}
			before := m.from.ready + m.to.ready
			step := rolling.Plan(m.state())
			waits := false
			switch both := rapid.Bool().Draw(t, "both"); { // callers may set both, or one at a time
			case step.To != m.to.want || both && step.From != m.from.want:
				m.to.want = step.To
				if both {
					m.from.want = step.From
				}
			case step.From != m.from.want:
				m.from.want = step.From
			case step.Why != "":
				waits = true
			default:
				if m.from.want > desired-last || m.from.ready+m.from.unready > m.from.want || m.to.ready != last || m.to.unready != 0 {
					t.Fatalf("finished in %+v, want %d new pods and at most %d old ones", *m, last, desired-last)
				}
				return
			}
			// The cluster makes a few of the pending changes, in any order, and at least one if the plan waits.
			n := rapid.IntRange(0, 4).Draw(t, "cluster steps")
			if waits {
				n = max(n, 1)
			}
			moved := false
			for range n {
				choice := rapid.IntRange(0, 5).Draw(t, "choice")
				first, second := &m.from, &m.to
				if choice >= 3 {
					first, second = second, first
				}
				did := first.control(choice) || second.control(choice)
				moved = moved || did
				m.check(t, fmt.Sprint(step), before)
				before = m.from.ready + m.to.ready
			}
			if waits && !moved {
				t.Fatalf("it waits (%s) and nothing can happen: %+v", step.Why, *m)
			}
		}
	})
}

func limitsOf(desired int32, surge, unavailable string) rolling.Limits {
	return rolling.LimitsOf(desired, new(intstr.Parse(surge)), new(intstr.Parse(unavailable)))
}

func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		desired            int32
		surge, unavailable string
		want               rolling.Limits
	}{
		{desired: 3, surge: "1", unavailable: "0", want: rolling.Limits{Min: 3, Max: 4}},
		{desired: 10, surge: "30%", unavailable: "0", want: rolling.Limits{Min: 10, Max: 13}},
		{desired: 3, surge: "25%", unavailable: "25%", want: rolling.Limits{Min: 3, Max: 4}},
		{desired: 3, surge: "0", unavailable: "25%", want: rolling.Limits{Min: 2, Max: 3}}, // or nothing could move
		{desired: 3, surge: "0", unavailable: "0", want: rolling.Limits{Min: 2, Max: 3}},
		{desired: 0, surge: "1", unavailable: "1", want: rolling.Limits{Min: 0, Max: 1}},
		{desired: 3, surge: "2147483647", unavailable: "9", want: rolling.Limits{Min: 0, Max: math.MaxInt32}},
	} {
		if got := limitsOf(tt.desired, tt.surge, tt.unavailable); got != tt.want {
			t.Errorf("LimitsOf(%d, %s, %s) = %+v, want %+v", tt.desired, tt.surge, tt.unavailable, got, tt.want)
		}
	}
}
