package lifecycle_test

import (
	"testing"
	"time"

	"github.com/sampan-io/sampan/node/lifecycle"
)

func TestBackoffGrowsToTheLongestPause(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		longest time.Duration
		want    []time.Duration
	}{
		{lifecycle.LongestPause, []time.Duration{10e9, 20e9, 40e9, 80e9, 160e9, 300e9, 300e9}},
		{25 * time.Second, []time.Duration{10e9, 20e9, 25e9, 25e9}},
		{3 * time.Second, []time.Duration{3e9, 3e9}},
	} {
		var b lifecycle.Backoff
		for i, want := range tt.want {
			if b = b.Next(now, now, lifecycle.UpTo(tt.longest)); b.Pause != want {
				t.Errorf("longest %v: pause %d is %v, want %v", tt.longest, i+1, b.Pause, want)
			}
		}
	}
}
