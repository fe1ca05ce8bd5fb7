package controller

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics collects the state of the queues of loops, under the names that upstream's controllers use. Loops that run with
// a context of [WithMetrics] appear in it.
type Metrics struct {
	mu    sync.Mutex
	loops []*Loop // guarded by mu
}

type metricsKey struct{}

// WithMetrics returns a context in which loops report to m.
func WithMetrics(ctx context.Context, m *Metrics) context.Context {
	return context.WithValue(ctx, metricsKey{}, m)
}

// measured makes the loop appear in the metrics of ctx, if it has some.
func (l *Loop) measured(ctx context.Context) {
	if m, ok := ctx.Value(metricsKey{}).(*Metrics); ok {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.loops = append(m.loops, l)
	}
}

// queueBuckets are upstream's buckets of queues, in seconds.
var queueBuckets = [...]float64{1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10}

// A durations counts how long something took. Its caller guards it.
type durations struct {
	n       uint64
	sum     time.Duration
	buckets [len(queueBuckets)]uint64 // each with the smaller ones
}

func (d *durations) observe(took time.Duration) {
	d.n++
	d.sum += took
	for i := len(queueBuckets) - 1; i >= 0 && took.Seconds() <= queueBuckets[i]; i-- {
		d.buckets[i]++
	}
}

// histogram returns the metric of the counts.
func (d *durations) histogram(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(queueBuckets))
	for i, bound := range queueBuckets {
		buckets[bound] = d.buckets[i]
	}
	return prometheus.MustNewConstHistogram(desc, d.n, d.sum.Seconds(), buckets, labels...)
}

// counts is the counters of a queue. The mu of the queue guards it.
type counts struct {
	adds    uint64
	retries uint64
	waited  durations // from when a key was due to the begin of the work
	worked  durations
}

func queueDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("workqueue_"+name, help, []string{"name"}, nil)
}

var (
	descDepth      = queueDesc("depth", "Keys that are due and wait for a worker.")
	descAdds       = queueDesc("adds_total", "Keys that became due.")
	descRetries    = queueDesc("retries_total", "Keys that are tried again after a failure.")
	descWaited     = queueDesc("queue_duration_seconds", "Time that a due key waited for a worker.")
	descWorked     = queueDesc("work_duration_seconds", "Time that the work on a key took.")
	descUnfinished = queueDesc("unfinished_work_seconds", "Time that the work under way has taken so far, all keys together.")
	descLongest    = queueDesc("longest_running_processor_seconds", "Time that the oldest work under way has taken so far.")
)

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descDepth, descAdds, descRetries, descWaited, descWorked, descUnfinished, descLongest} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	loops := m.loops[:len(m.loops):len(m.loops)]
	m.mu.Unlock()
	seen := map[string]bool{}
	for _, l := range loops {
		if seen[l.opts.Name] {
			continue // two series of one name would make the whole page fail
		}
		seen[l.opts.Name] = true
		l.queue.collect(to, l.opts.Name)
	}
}

func (q *queue) collect(to chan<- prometheus.Metric, name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var unfinished, longest time.Duration
	depth := len(q.line)
	for _, s := range q.keys {
		switch {
		case s.working && !s.begun:
			depth++
		case s.working:
			took := time.Since(s.since)
			unfinished += took
			longest = max(longest, took)
		}
	}
	metric := func(desc *prometheus.Desc, kind prometheus.ValueType, n float64) {
		to <- prometheus.MustNewConstMetric(desc, kind, n, name)
	}
	metric(descDepth, prometheus.GaugeValue, float64(depth))
	metric(descAdds, prometheus.CounterValue, float64(q.counts.adds))
	metric(descRetries, prometheus.CounterValue, float64(q.counts.retries))
	metric(descUnfinished, prometheus.GaugeValue, unfinished.Seconds())
	metric(descLongest, prometheus.GaugeValue, longest.Seconds())
	to <- q.counts.waited.histogram(descWaited, name)
	to <- q.counts.worked.histogram(descWorked, name)
}
