package stats

import (
	"math/bits"
	"sync"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Bounds of the time over which a rate is taken. A shorter one is not exact, because the kernel counts the node's use in ticks; a
// longer one says nothing about now.
const (
	shortest = time.Second
	longest  = 5 * time.Minute
)

// Rates fills in the use of CPU in nanocores from one summary to the next. Nothing is measured in between, so a rate is the average
// since the summary before, at least a second and at most five minutes ago. There is none without such a summary. The zero value is
// ready for use, and safe for concurrent use.
type Rates struct {
	mu   sync.Mutex
	last map[string]sample // guarded by mu; of the latest summary
}

// A sample is the use of CPU at one time.
type sample struct {
	at   time.Time
	used uint64  // nanoseconds of one core
	rate *uint64 // nanocores up to then; nil if it was the first one
}

// Fill sets the rates in a summary where the container runtime has not set them.
func (r *Rates) Fill(s *statsapi.Summary) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := map[string]sample{}
	fill := func(key string, c *statsapi.CPUStats) {
		if c == nil || c.UsageCoreNanoSeconds == nil || c.UsageNanoCores != nil {
			return
		}
		now[key] = r.last[key].next(c.Time.Time, *c.UsageCoreNanoSeconds)
		c.UsageNanoCores = now[key].rate
	}
	fill("node", s.Node.CPU)
	for i := range s.Node.SystemContainers {
		fill("system/"+s.Node.SystemContainers[i].Name, s.Node.SystemContainers[i].CPU)
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		fill("pod/"+p.PodRef.UID, p.CPU)
		for j := range p.Containers {
			fill("pod/"+p.PodRef.UID+"/"+p.Containers[j].Name, p.Containers[j].CPU)
		}
	}
	r.last = now
}

// next returns the sample that follows; the zero sample is none. Counters of a container that was restarted begin again.
func (s sample) next(at time.Time, used uint64) sample {
	elapsed := at.Sub(s.at)
	switch {
	case !s.at.IsZero() && elapsed < shortest: // also an older summary, of another request
		return s
	case s.at.IsZero() || elapsed > longest || used < s.used:
		return sample{at: at, used: used}
	}
	high, low := bits.Mul64(used-s.used, uint64(time.Second))
	if high >= uint64(elapsed) {
		return sample{at: at, used: used}
	}
	rate, _ := bits.Div64(high, low, uint64(elapsed))
	return sample{at: at, used: used, rate: &rate}
}
