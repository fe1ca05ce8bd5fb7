package node

import (
	"slices"
	"testing"
	"time"
)

func TestLimitsAreAskedForInPeriods(t *testing.T) {
	s, began := limitSchedule{}, time.Unix(1000, 0)
	periods := map[string]time.Duration{"a": 10 * time.Second, "b": 15 * time.Second}
	for _, tt := range []struct {
		after time.Duration
		names []string
		next  time.Duration
	}{
		{0, nil, 10 * time.Second},
		{9 * time.Second, nil, time.Second},
		{10 * time.Second, []string{"a"}, 5 * time.Second},
		{20 * time.Second, []string{"a", "b"}, 10 * time.Second},
	} {
		names, next := s.due(began.Add(tt.after), periods)
		if !slices.Equal(names, tt.names) || next != tt.next {
			t.Errorf("after %s: %v and then %s, want %v and %s", tt.after, names, next, tt.names, tt.next)
		}
	}
	if _, next := s.due(began.Add(21*time.Second), nil); next != 0 || len(s) != 0 {
		t.Errorf("without drivers: next %s, %v", next, s)
	}
	if names, _ := s.due(began.Add(60*time.Second), periods); len(names) > 0 {
		t.Errorf("drivers that have just come are asked: %v", names)
	}
}
