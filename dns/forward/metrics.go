package forward

import (
	"net/netip"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// counters have CoreDNS's metric names, which dashboards use.
type counters struct {
	requests, responses   *prometheus.CounterVec   // by server, and by code
	duration              *prometheus.HistogramVec // by server
	failures, refused     prometheus.Counter
	hits, denials, misses prometheus.Counter
	gauges                []prometheus.Collector
}

func newCounters(f *Forwarder) *counters {
	opts := func(name, help string, labels prometheus.Labels) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}
	}
	counter := func(name, help string, labels prometheus.Labels) prometheus.Counter {
		return prometheus.NewCounter(opts(name, help, labels))
	}
	gauge := func(name, help string, labels prometheus.Labels, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return float64(value()) })
	}
	const (
		hits, entries   = "coredns_cache_hits_total", "coredns_cache_entries"
		aboutHits       = "Questions that were answered from the cache."
		aboutEntries    = "Answers in the cache."
		success, denial = "success", "denial"
	)
	kind := func(value string) prometheus.Labels { return prometheus.Labels{"type": value} }
	return &counters{
		requests:  prometheus.NewCounterVec(opts("coredns_forward_requests_total", "Questions that upstream resolvers were sent.", nil), []string{"to"}),
		responses: prometheus.NewCounterVec(opts("coredns_forward_responses_total", "Answers of upstream resolvers.", nil), []string{"to", "rcode"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "coredns_forward_request_duration_seconds", Help: "Time that an upstream resolver took to answer, or to fail.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"to"}),
		failures: counter("coredns_forward_failures_total", "Questions that an upstream resolver did not answer, or could not.", nil),
		refused:  counter("coredns_forward_max_concurrent_rejects_total", "Questions that were refused because too many were under way.", nil),
		hits:     counter(hits, aboutHits, kind(success)),
		denials:  counter(hits, aboutHits, kind(denial)),
		misses:   counter("coredns_cache_misses_total", "Questions whose answers were not in the cache.", nil),
		gauges: []prometheus.Collector{
			gauge(entries, aboutEntries, kind(success), func() int { n, denials, _ := f.cache.stat(); return n - denials }),
			gauge(entries, aboutEntries, kind(denial), func() int { _, denials, _ := f.cache.stat(); return denials }),
			gauge("coredns_cache_bytes", "Bytes that the cache takes.", nil, func() int { _, _, n := f.cache.stat(); return n }),
			gauge("coredns_forward_outstanding", "Questions that are under way or wait.", nil, func() int { return len(f.slots) }),
		},
	}
}

// asked counts a question to a server, and its answer, if any.
func (c *counters) asked(at netip.AddrPort, m *dns.Msg, err error, took time.Duration) {
	to := at.String()
	c.requests.WithLabelValues(to).Inc()
	c.duration.WithLabelValues(to).Observe(took.Seconds())
	if err == nil {
		c.responses.WithLabelValues(to, rcodeName(m.Rcode)).Inc()
	}
}

// Collectors returns the forwarder's metrics.
func (f *Forwarder) Collectors() []prometheus.Collector {
	c := f.count
	return append([]prometheus.Collector{c.requests, c.responses, c.duration, c.failures, c.refused, c.hits, c.denials, c.misses}, c.gauges...)
}
