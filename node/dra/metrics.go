package dra

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sampan-io/sampan/node/pluginregistry"
)

// anyDriver stands for all drivers in the numbers of claims: a claim may have devices of several.
const anyDriver = "<any>"

// metrics are those of upstream's kubelet about dynamic resources.
type metrics struct {
	operations *prometheus.HistogramVec // for pods
	calls      *pluginregistry.Calls
	inUse      *prometheus.Desc
}

func newMetrics(registered func(driver string) bool) metrics {
	histogram := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{
			Subsystem: "dra", Name: name, Help: help, Buckets: prometheus.ExponentialBucketsRange(0.1, 40, 15),
		}
	}
	return metrics{
		operations: prometheus.NewHistogramVec(
			histogram("operations_duration_seconds", "How long it took to prepare or unprepare all claims of a pod."),
			[]string{"operation_name", "is_error"}),
		calls: pluginregistry.NewCalls(histogram("grpc_operations_duration_seconds", "How long calls of drivers took."), registered),
		inUse: prometheus.NewDesc("dra_resource_claims_in_use",
			"Claims that are prepared on the node, by driver; "+anyDriver+" counts each claim once.", []string{"driver_name"}, nil),
	}
}

// observe records an operation for a pod that began at a time.
func (m *metrics) observe(name string, began time.Time, err error) {
	m.operations.WithLabelValues(name, strconv.FormatBool(err != nil)).Observe(time.Since(began).Seconds())
}

// Metrics returns the metrics of the manager.
func (m *Manager) Metrics() prometheus.Collector { return collector{m} }

type collector struct{ m *Manager }

// Describe implements [prometheus.Collector].
func (c collector) Describe(to chan<- *prometheus.Desc) {
	c.m.metrics.operations.Describe(to)
	c.m.metrics.calls.Describe(to)
	to <- c.m.metrics.inUse
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(to chan<- prometheus.Metric) {
	c.m.metrics.operations.Collect(to)
	c.m.metrics.calls.Collect(to)
	for driver, n := range c.m.inUse() {
		to <- prometheus.MustNewConstMetric(c.m.metrics.inUse, prometheus.GaugeValue, float64(n), driver)
	}
}

// inUse returns how many claims are prepared, by driver.
func (m *Manager) inUse() map[string]int {
	counts := map[string]int{anyDriver: 0}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.claims {
		if !c.prepared {
			continue
		}
		counts[anyDriver]++
		for driver := range c.Drivers {
			counts[driver]++
		}
	}
	return counts
}
