package run

import (
	"context"
	"time"
)

// Pause waits for d and reports whether ctx still holds. It returns at once when ctx
// is over.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil // both may be ready together
	case <-ctx.Done():
		return false
	}
}
