package proxy

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have the names of kube-proxy's where that has the same. What came to one Service is
// with counts, and how its backends answered a forwarder with that.
type metrics struct {
	duration, full, partial         prometheus.Histogram
	network                         prometheus.Histogram
	last, queued                    prometheus.Gauge
	serviceChanges, endpointChanges prometheus.Counter
	rules, services                 prometheus.Gauge
	failures, kernelFailures        prometheus.Counter
	refusedAddresses, relayFailures prometheus.Counter

	all []prometheus.Collector
}

// syncBounds are kube-proxy's: 1 ms and up, in powers of two.
var syncBounds = prometheus.ExponentialBuckets(0.001, 2, 15)

func newMetrics() *metrics {
	m := &metrics{}
	histogram := func(name, help string, bounds []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: bounds})
		m.all = append(m.all, h)
		return h
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		m.all = append(m.all, g)
		return g
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		m.all = append(m.all, c)
		return c
	}
	const sync = "kubeproxy_sync_proxy_rules_"
	m.duration = histogram(sync+"duration_seconds", "How long it took to make or change the kernel's rules.", syncBounds)
	m.full = histogram("kubeproxy_sync_full_proxy_rules_duration_seconds", "How long it took to make all rules of the kernel anew.", syncBounds)
	m.partial = histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds", "How long it took to change rules of the kernel.", syncBounds)
	// Finer than kube-proxy's below its first bound, and with all of the bounds that it has.
	m.network = histogram("kubeproxy_network_programming_duration_seconds",
		"Time from the change of a Service or pod until the rules are so, by the clock of the controller of endpoints.",
		slices.Concat([]float64{0.005, 0.01, 0.025, 0.05, 0.1}, prometheus.LinearBuckets(0.25, 0.25, 2), prometheus.LinearBuckets(1, 1, 59),
			prometheus.LinearBuckets(60, 5, 12), prometheus.LinearBuckets(120, 30, 7)))
	m.last = gauge(sync+"last_timestamp_seconds", "When the kernel's rules were made or changed last, in seconds since 1970.")
	m.queued = gauge(sync+"last_queued_timestamp_seconds", "When a change that may concern the rules came last, in seconds since 1970.")
	m.serviceChanges = counter(sync+"service_changes_total", "Changes of Services that were seen.")
	m.endpointChanges = counter(sync+"endpoint_changes_total", "Changes of EndpointSlices that were seen.")
	m.kernelFailures = counter(sync+"nftables_sync_failures_total", "Changes of rules that the kernel refused.")
	m.failures = counter("sampan_proxy_sync_failures_total", "Changes of rules that the kernel refused.")
	m.refusedAddresses = counter("sampan_proxy_refused_addresses_total", "Addresses of services and endpoints that no traffic goes by, because they are of loopback, link-local or the like.")
	m.relayFailures = counter("sampan_proxy_relay_failures_total", "Sockets of relayed Services that could not be opened or changed.")
	m.rules = gauge("sampan_proxy_rules", "Rules that the kernel has: one for each address and port of a Service.")
	m.services = gauge("sampan_proxy_services", "Services that are proxied.")
	return m
}

// synced notes that the kernel took all rules anew, or changes.
func (m *metrics) synced(start time.Time, anew bool) {
	took := time.Since(start).Seconds()
	m.duration.Observe(took)
	if anew {
		m.full.Observe(took)
	} else {
		m.partial.Observe(took)
	}
	m.last.SetToCurrentTime()
}

// hold notes how much there is.
func (m *metrics) hold(services, rules int) {
	m.services.Set(float64(services))
	m.rules.Set(float64(rules))
}

// programmed notes that the rules are as something wanted that happened then.
func (m *metrics) programmed(cause time.Time) {
	m.network.Observe(max(0, time.Since(cause).Seconds()))
}

func (m *metrics) failed() {
	m.failures.Inc()
	m.kernelFailures.Inc()
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(ch)
	}
}

// Metrics returns what the proxy measures.
func (p *Proxy) Metrics() []prometheus.Collector { return []prometheus.Collector{p.metrics, p.counts} }
