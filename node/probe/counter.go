package probe

import (
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Defaults of the API, for probes that did not pass through its defaulting.
const (
	defaultPeriod  = 10 * time.Second
	defaultTimeout = time.Second
)

// Timeout returns how long one probe may take.
func Timeout(p *corev1.Probe) time.Duration {
	if p.TimeoutSeconds > 0 {
		return time.Duration(p.TimeoutSeconds) * time.Second
	}
	return defaultTimeout
}

// A Counter applies the thresholds of one probe to the results of one container.
type Counter struct {
	// Verdict is what holds now. It begins as the zero value: a container is not
	// ready before it has said so.
	Verdict bool
	// Next is when to probe again.
	Next time.Time

	probe *corev1.Probe
	last  bool
	run   int32         // answers like the last one in a row
	eager time.Duration // pause after the next bad answer, until there was a good one; 0 means the period
}

// eagerStart is the first pause between probes of a container that has just started. A
// server takes a few milliseconds until it listens, and a whole period is long to wait
// for the next probe; the pause doubles with each probe up to the period.
const eagerStart = 20 * time.Millisecond

// NewCounter returns the counter of a container that began to run at the given
// time.
func NewCounter(p *corev1.Probe, started time.Time) *Counter {
	return &Counter{probe: p, Next: started.Add(time.Duration(p.InitialDelaySeconds) * time.Second), eager: eagerStart}
}

// Starting reports whether the container is still being looked at more often than
// its period says, because it has just begun to run.
func (c *Counter) Starting() bool { return c.eager > 0 }

// pause returns how long to wait after an answer.
func (c *Counter) pause(ok bool) time.Duration {
	if ok || c.eager == 0 || c.eager >= c.period() {
		c.eager = 0
		return c.period()
	}
	d := c.eager
	c.eager *= 2
	return d
}

// Answer records the result of one probe at the given time, and reports whether the
// verdict changed.
func (c *Counter) Answer(ok bool, at time.Time) bool {
	if ok != c.last || c.run == 0 {
		c.last, c.run = ok, 0
	}
	c.run++
	c.Next = at.Add(c.pause(ok))
	threshold := max(c.probe.SuccessThreshold, 1)
	if !ok {
		threshold = c.probe.FailureThreshold
		if threshold <= 0 {
			threshold = 3 // the API's default
		}
	}
	if c.run < threshold || c.Verdict == ok {
		return false
	}
	c.Verdict = ok
	return true
}

func (c *Counter) period() time.Duration {
	if c.probe.PeriodSeconds > 0 {
		return time.Duration(c.probe.PeriodSeconds) * time.Second
	}
	return defaultPeriod
}

// Spread moves the first probe of a container that has been running for long to a random
// time in the period: an agent that was restarted does not probe all of them at once.
func (c *Counter) Spread(now time.Time) {
	c.eager = 0
	if c.Next.Before(now) {
		c.Next = now.Add(rand.N(c.period()))
	}
}
