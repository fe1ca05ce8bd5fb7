package forward

import "github.com/prometheus/client_golang/prometheus"

// counters are told under the names that CoreDNS uses, which dashboards know.
type counters struct {
	requests, failures, refused prometheus.Counter
	hits, denials, misses       prometheus.Counter
	duration                    prometheus.Histogram
	entries, bytes, waiting     prometheus.GaugeFunc
}

func newCounters(f *Forwarder) *counters {
	counter := func(name, help string, labels prometheus.Labels) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels})
	}
	gauge := func(name, help string, value func() int) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	const hits = "coredns_cache_hits_total"
	return &counters{
		requests: counter("coredns_forward_requests_total", "Questions that upstream resolvers were sent.", nil),
		failures: counter("coredns_forward_failures_total", "Questions that an upstream resolver did not answer, or could not.", nil),
		refused:  counter("coredns_forward_max_concurrent_rejects_total", "Questions that were refused because too many were under way.", nil),
		hits:     counter(hits, "Questions that were answered from the cache.", prometheus.Labels{"type": "success"}),
		denials:  counter(hits, "Questions that were answered from the cache.", prometheus.Labels{"type": "denial"}),
		misses:   counter("coredns_cache_misses_total", "Questions whose answers were not in the cache.", nil),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "coredns_forward_request_duration_seconds", Help: "Time that an upstream resolver took to answer, or to fail.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
		entries: gauge("coredns_cache_entries", "Answers in the cache.", func() int { n, _ := f.cache.stat(); return n }),
		bytes:   gauge("coredns_cache_bytes", "Bytes that the cache takes.", func() int { _, n := f.cache.stat(); return n }),
		waiting: gauge("coredns_forward_outstanding", "Questions that are under way or wait.", func() int { return len(f.slots) }),
	}
}

// Collectors returns what counts the forwarder's work.
func (f *Forwarder) Collectors() []prometheus.Collector {
	c := f.count
	return []prometheus.Collector{c.requests, c.failures, c.refused, c.hits, c.denials, c.misses, c.duration, c.entries, c.bytes, c.waiting}
}
