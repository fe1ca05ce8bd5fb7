package dependents

import "time"

// Sooner returns the shorter of two durations after which a controller looks again, of which 0 or less means never.
func Sooner(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return max(0, b)
	}
	return a
}
