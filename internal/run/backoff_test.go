package run_test

import (
	"testing"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

func TestBackoffDoublesUpToMax(t *testing.T) {
	b := run.Backoff{First: 100 * time.Millisecond, Max: time.Second}
	for failures, least := range map[int]time.Duration{
		-1: 100 * time.Millisecond, 0: 100 * time.Millisecond, 1: 100 * time.Millisecond, 2: 200 * time.Millisecond,
		4: 800 * time.Millisecond, 5: time.Second, 1 << 40: time.Second,
	} {
		different := map[time.Duration]bool{}
		for range 100 {
			d := b.Pause(failures)
			if d < least || d > least*3/2 {
				t.Errorf("the pause after %d failures is %v, want %v to %v", failures, d, least, least*3/2)
			}
			different[d] = true
		}
		if len(different) < 2 {
			t.Errorf("the pauses after %d failures are all the same", failures)
		}
	}
}
