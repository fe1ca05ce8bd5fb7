package lifecycle

import (
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The pauses between restarts of a container and between pulls of an image, as
// the Kubernetes documentation gives them. The configuration of the node may have a
// shorter longest one for containers.
const (
	FirstPause   = 10 * time.Second
	LongestPause = 5 * time.Minute
	// ResetAfter is how long a container must have run for its next end to count
	// as the first.
	ResetAfter = 10 * time.Minute
)

// Pauses are the first and the longest pause of a back-off.
type Pauses struct{ First, Longest time.Duration }

// DefaultPauses returns the pauses of Kubernetes.
func DefaultPauses() Pauses { return UpTo(LongestPause) }

// UpTo returns the pauses of Kubernetes with another longest one, which may be shorter than their first one.
func UpTo(longest time.Duration) Pauses {
	return Pauses{First: min(FirstPause, longest), Longest: longest}
}

// A Backoff is a growing pause. The zero Backoff means no pause at all. It is in memory only: a new agent forgets it, as
// upstream's kubelet does, because the containers of a host that crashed would otherwise be punished for that.
type Backoff struct {
	Pause time.Duration
	At    time.Time // when the pause last grew

	// Attempt is that of the container for which it last grew; 0 for what has no
	// attempts.
	Attempt int32
}

// For returns the back-off as that of an attempt.
func (b Backoff) For(attempt int32) Backoff {
	b.Attempt = attempt
	return b
}

// Until returns the end of the pause that follows an event, which has passed
// already if there is none.
func (b Backoff) Until(event time.Time) time.Time {
	if event.Sub(b.At) > ResetAfter {
		return event
	}
	return event.Add(b.Pause)
}

// Next returns the back-off after one more try, made now because of an event.
func (b Backoff) Next(event, now time.Time, p Pauses) Backoff {
	if b.Pause == 0 || event.Sub(b.At) > ResetAfter {
		return Backoff{Pause: p.First, At: now}
	}
	return Backoff{Pause: min(2*b.Pause, p.Longest), At: now}
}

// Hash returns a hash of the fields of a container that require a restart when they
// change. Of a running pod only the image may change.
func Hash(c *corev1.Container) string {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%q %q", c.Name, c.Image)
	return fmt.Sprintf("%08x", h.Sum32())
}
