package priority

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// stats counts the requests of one schema in one level.
type stats struct {
	running  packed // requests that have seats, and the seats
	waiting  packed // requests that wait for seats, and the seats
	rejected [reasons]atomic.Int64

	execution latency    // of requests that have ended
	waited    [2]latency // refused and executed requests that waited
}

// A packed is a number of requests and the number of their seats, which change together.
type packed struct{ n atomic.Int64 }

func (p *packed) add(requests, seats int)      { p.n.Add(int64(requests)<<32 + int64(seats)) }
func (p *packed) get() (requests, seats int64) { n := p.n.Load(); return n >> 32, n & (1<<32 - 1) }

// bounds are the buckets of upstream's metrics.
var bounds = [...]time.Duration{
	0, 5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
}

// A latency counts durations. It is cheaper than a histogram of Prometheus, whose values are floats.
type latency struct {
	buckets [len(bounds) + 1]atomic.Uint64 // each without the smaller ones
	sum     atomic.Int64
}

func (l *latency) observe(took time.Duration) {
	i := 0
	for i < len(bounds) && took > bounds[i] {
		i++
	}
	l.buckets[i].Add(1)
	l.sum.Add(int64(took))
}

// count returns how many durations were counted.
func (l *latency) count() (n uint64) {
	for i := range l.buckets {
		n += l.buckets[i].Load()
	}
	return n
}

// histogram returns the metric of the durations.
func (l *latency) histogram(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	buckets, n := make(map[float64]uint64, len(bounds)), uint64(0)
	for i, b := range bounds {
		n += l.buckets[i].Load()
		buckets[b.Seconds()] = n
	}
	return prometheus.MustNewConstHistogram(desc, n+l.buckets[len(bounds)].Load(), time.Duration(l.sum.Load()).Seconds(), buckets, labels...)
}

const subsystem = "apiserver_flowcontrol_"

func (s *stats) begin(seats int) { s.running.add(1, seats) }

func (s *stats) end(seats int, took time.Duration) {
	s.execution.observe(took)
	s.running.add(-1, -seats)
}

func (s *stats) enqueue(seats int) { s.waiting.add(1, seats) }

func (s *stats) dequeue(seats int, waited time.Duration, executed bool) {
	s.waiting.add(-1, -seats)
	i := 0
	if executed {
		i = 1
	}
	s.waited[i].observe(waited)
}

// dispatched returns how many requests got seats.
func (s *stats) dispatched() int64 {
	running, _ := s.running.get()
	return running + int64(s.execution.count())
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(subsystem+name, help, labels, nil)
}

// The metrics, under the names that upstream uses.
var (
	perSchema      = []string{"priority_level", "flow_schema"}
	descRejected   = desc("rejected_requests_total", "Requests that were refused.", "priority_level", "flow_schema", "reason")
	descDispatched = desc("dispatched_requests_total", "Requests that were executed.", perSchema...)
	descWaiting    = desc("current_inqueue_requests", "Requests that wait in queues.", perSchema...)
	descWanted     = desc("current_inqueue_seats", "Seats of the requests that wait in queues.", perSchema...)
	descExecuting  = desc("current_executing_requests", "Requests that have seats.", perSchema...)
	descSeats      = desc("current_executing_seats", "Seats in use.", perSchema...)
	descNominal    = desc("nominal_limit_seats", "Seats that the level has by its shares.", "priority_level")
	descLower      = desc("lower_limit_seats", "Seats that the level never lends.", "priority_level")
	descUpper      = desc("upper_limit_seats", "Seats that the level can have at most, borrowed ones included.", "priority_level")
	descExecution  = desc("request_execution_seconds", "Time in which a request had its seats: all of its execution, and of a watch the first state.", perSchema...)
	descWaited     = desc("request_wait_duration_seconds", "Time that a request waited in a queue.", "priority_level", "flow_schema", "execute")
	descLimit      = desc("current_limit_seats", "Seats that the level has now.", "priority_level")
)

// Describe implements [prometheus.Collector].
func (d *Dispatcher) Describe(to chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{
		descRejected, descDispatched, descWaiting, descWanted, descExecuting, descSeats, descNominal, descLower, descUpper, descLimit,
		descExecution, descWaited,
	} {
		to <- one
	}
}

// Collect implements [prometheus.Collector].
func (d *Dispatcher) Collect(to chan<- prometheus.Metric) {
	config := d.config.Load()
	gauge := func(desc *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), labels...)
	}
	for _, s := range config.schemas {
		labels := []string{s.level.name, s.name}
		executing, seats := s.stats.running.get()
		waiting, wanted := s.stats.waiting.get()
		to <- prometheus.MustNewConstMetric(descDispatched, prometheus.CounterValue, float64(s.stats.dispatched()), labels...)
		gauge(descExecuting, executing, labels...)
		gauge(descSeats, seats, labels...)
		gauge(descWaiting, waiting, labels...)
		gauge(descWanted, wanted, labels...)
		for r := none + 1; r < reasons; r++ {
			if n := s.stats.rejected[r].Load(); n > 0 {
				to <- prometheus.MustNewConstMetric(descRejected, prometheus.CounterValue, float64(n), s.level.name, s.name, r.String())
			}
		}
		if s.stats.execution.count() > 0 {
			to <- s.stats.execution.histogram(descExecution, labels...)
		}
		for i, executed := range []string{"false", "true"} {
			if s.stats.waited[i].count() > 0 {
				to <- s.stats.waited[i].histogram(descWaited, s.level.name, s.name, executed)
			}
		}
	}
	for _, l := range config.levels {
		l.mu.Lock()
		limits := []int{l.fair, l.least, l.most, l.limit}
		l.mu.Unlock()
		if l.exempt {
			continue
		}
		for i, desc := range []*prometheus.Desc{descNominal, descLower, descUpper, descLimit} {
			gauge(desc, int64(limits[i]), l.name)
		}
	}
}
