package run

import (
	"math/rand/v2"
	"time"
)

// A Backoff returns the pauses after failures in a row: First after the first one, then twice as long each time, up to
// Max. Each pause is lengthened at random by up to a half, so that clients that fail together do not try again together.
type Backoff struct{ First, Max time.Duration }

// Pause returns the pause after so many failures in a row. Less than one failure counts as one.
func (b Backoff) Pause(failures int) time.Duration {
	d := b.First
	for i := 1; i < failures && d < b.Max; i++ {
		d *= 2
	}
	d = min(d, b.Max)
	return d + rand.N(d/2+1)
}
