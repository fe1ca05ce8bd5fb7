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

// A Kind is what the results of a probe are for. Its text is how events call the probe.
type Kind string

// The kinds of probes.
const (
	Readiness Kind = "Readiness"
	Liveness  Kind = "Liveness"
	Startup   Kind = "Startup"
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
	// Verdict is the present result. A container is alive until it has failed, and neither ready nor started until it has
	// succeeded.
	Verdict bool
	// Failed is true once the failure threshold has been reached, until the next change of the verdict.
	Failed bool
	// Next is when to probe again.
	Next time.Time

	probe *corev1.Probe
	begin time.Time // of the first probe
	last  bool
	run   int32         // answers like the last one in a row
	eager time.Duration // pause after the next bad answer, until there was a good one; 0 means the period
}

// eagerStart is the first pause between probes of a container that has just started. A
// server takes a few milliseconds until it listens, and a whole period is long to wait
// for the next probe; the pause doubles with each probe up to the period.
const eagerStart = 20 * time.Millisecond

// NewCounter returns the counter of a container that began to run at the given time. Readiness and startup are probed often
// at first. The first liveness probe is at the first multiple of the period after the initial delay, as in Kubernetes.
func NewCounter(kind Kind, p *corev1.Probe, started time.Time) *Counter {
	c := &Counter{probe: p, eager: eagerStart}
	delay := time.Duration(p.InitialDelaySeconds) * time.Second
	if kind == Liveness {
		c.Verdict, c.eager = true, 0
		period := c.period()
		delay = max((delay+period-1)/period, 1) * period
	}
	c.Next = started.Add(delay)
	c.begin = c.Next
	return c
}

// Starting reports whether the container is still being looked at more often than
// its period says, because it has just begun to run.
func (c *Counter) Starting() bool { return c.eager > 0 }

// pause returns how long to wait after an answer at the given time. A container is probed often for one period.
func (c *Counter) pause(ok bool, at time.Time) time.Duration {
	if ok || c.eager == 0 || at.Sub(c.begin) >= c.period() || c.eager >= c.period() {
		c.eager = 0
		return c.period()
	}
	d := c.eager
	c.eager *= 2
	return d
}

// Answer records the result of one probe at the given time, and reports whether the verdict changed. Bad answers between the
// first one and the end of the frequent probes do not count: a container has as much time to start as its author gave it.
func (c *Counter) Answer(ok bool, at time.Time) bool {
	early := c.run > 0 && c.Starting()
	c.Next = at.Add(c.pause(ok, at))
	if !ok && early && c.Starting() {
		return false
	}
	if ok != c.last || c.run == 0 {
		c.last, c.run = ok, 0
	}
	c.run++
	threshold := max(c.probe.SuccessThreshold, 1)
	if !ok {
		threshold = c.probe.FailureThreshold
		if threshold <= 0 {
			threshold = 3 // the API's default
		}
	}
	if c.run < threshold {
		return false
	}
	c.Failed = !ok
	if c.Verdict == ok {
		return false
	}
	c.Verdict = ok
	return true
}

// Skip records that a probe could not be made: only the time of the next one changes.
func (c *Counter) Skip(at time.Time) { c.Next = at.Add(c.pause(false, at)) }

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
