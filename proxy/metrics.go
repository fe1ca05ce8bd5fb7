package proxy

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have kube-proxy's names where it has the same. Counts of each Service's traffic are in
// counts, and how its backends answered a forwarder in the forwarder's metrics.
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

// syncBounds are kube-proxy's: from 1 ms, in powers of two.
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
	m.full = histogram("kubeproxy_sync_full_proxy_rules_duration_seconds", "How long it took to replace all rules of the kernel.", syncBounds)
	m.partial = histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds", "How long it took to change rules of the kernel.", syncBounds)
	// Like kube-proxy's bounds, with a few more below its first.
	m.network = histogram("kubeproxy_network_programming_duration_seconds",
		"Time from the change of a Service or pod until the rules include it, by the clock of the controller of endpoints.",
		slices.Concat([]float64{0.005, 0.01, 0.025, 0.05, 0.1}, prometheus.LinearBuckets(0.25, 0.25, 2), prometheus.LinearBuckets(1, 1, 59),
			prometheus.LinearBuckets(60, 5, 12), prometheus.LinearBuckets(120, 30, 7)))
	m.last = gauge(sync+"last_timestamp_seconds", "When the kernel's rules were made or changed last, in seconds since 1970.")
	m.queued = gauge(sync+"last_queued_timestamp_seconds", "When a change that may affect the rules was last received, in seconds since 1970.")
	m.serviceChanges = counter(sync+"service_changes_total", "Changes of Services that the proxy received.")
	m.endpointChanges = counter(sync+"endpoint_changes_total", "Changes of EndpointSlices that the proxy received.")
	m.kernelFailures = counter(sync+"nftables_sync_failures_total", "Changes of rules that the kernel refused.")
	m.failures = counter("sampan_proxy_sync_failures_total", "Changes of rules that the kernel refused.")
	m.refusedAddresses = counter("sampan_proxy_refused_addresses_total", "Addresses of services and endpoints that get no traffic, because they are loopback, link-local or the like.")
	m.relayFailures = counter("sampan_proxy_relay_failures_total", "Sockets of relayed Services that could not be opened or changed.")
	m.rules = gauge("sampan_proxy_rules", "Rules that the kernel has: one for each address and port of a Service.")
	m.services = gauge("sampan_proxy_services", "Services that are proxied.")
	return m
}

// synced records a change of rules: of all of them if full.
func (m *metrics) synced(start time.Time, full bool) {
	took := time.Since(start).Seconds()
	m.duration.Observe(took)
	if full {
		m.full.Observe(took)
	} else {
		m.partial.Observe(took)
	}
	m.last.SetToCurrentTime()
}

// hold records the numbers of Services and rules.
func (m *metrics) hold(services, rules int) {
	m.services.Set(float64(services))
	m.rules.Set(float64(rules))
}

// programmed records that the rules now include a change of that time.
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

// Metrics returns the proxy's metrics.
func (p *Proxy) Metrics() []prometheus.Collector { return []prometheus.Collector{p.metrics, p.counts} }
