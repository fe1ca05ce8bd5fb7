package volumes

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/internal/run"
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

func TestSlowDriverDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := run.NewGroup(t.Context(), 0)
		defer group.Stop()
		var mu sync.Mutex
		asked := map[string]int{}
		r := &limitRefresher{group: group, log: slog.New(slog.DiscardHandler), pending: map[string]bool{}}
		answer := make(chan struct{})
		r.refresh = func(ctx context.Context, driver string) error {
			mu.Lock()
			asked[driver]++
			mu.Unlock()
			if driver == "slow" {
				select {
				case <-answer:
				case <-ctx.Done():
				}
			}
			return nil
		}
		want := func(slow, fast int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if asked["slow"] != slow || asked["fast"] != fast {
				t.Errorf("slow was asked %d times and fast %d times, want %d and %d", asked["slow"], asked["fast"], slow, fast)
			}
		}
		for i := range 3 { // slow has one question at a time
			r.start("slow")
			r.start("fast")
			want(1, i+1)
		}
		close(answer)
		synctest.Wait()
		r.start("slow")
		want(2, 3)
	})
}
