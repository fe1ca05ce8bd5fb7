package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have the names of kube-proxy's where that has the same.
type metrics struct {
	duration         prometheus.Histogram
	last             prometheus.Gauge
	failures         prometheus.Counter
	refusedAddresses prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubeproxy_sync_proxy_rules_duration_seconds", Help: "How long changes of the kernel's rules took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubeproxy_sync_proxy_rules_last_timestamp_seconds", Help: "When the kernel's rules were changed last, in seconds since 1970.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sampan_proxy_sync_failures_total", Help: "Changes of rules that the kernel refused.",
		}),
		refusedAddresses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sampan_proxy_refused_addresses_total", Help: "Addresses of services and endpoints that no traffic goes by, because they are of loopback, link-local or the like.",
		}),
	}
}

func (m *metrics) synced(start time.Time) {
	m.duration.Observe(time.Since(start).Seconds())
	m.last.SetToCurrentTime()
}

func (m *metrics) failed() { m.failures.Inc() }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{m.duration, m.last, m.failures, m.refusedAddresses} {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.duration, m.last, m.failures, m.refusedAddresses} {
		c.Collect(ch)
	}
}

// Metrics returns what the proxy measures.
func (p *Proxy) Metrics() prometheus.Collector { return p.metrics }
