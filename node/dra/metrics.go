package dra

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// anyDriver stands for all drivers in the numbers of claims: a claim may have devices of several.
const anyDriver = "<any>"

// metrics are those of upstream's kubelet about dynamic resources.
type metrics struct {
	operations *prometheus.HistogramVec // for pods
	calls      *prometheus.HistogramVec // of drivers
	inUse      *prometheus.Desc
}

func newMetrics() metrics {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "dra", Name: name, Help: help, Buckets: prometheus.ExponentialBucketsRange(0.1, 40, 15),
		}, labels)
	}
	return metrics{
		operations: histogram("operations_duration_seconds", "How long it took to prepare or unprepare all claims of a pod.", "operation_name", "is_error"),
		calls:      histogram("grpc_operations_duration_seconds", "How long calls of drivers took.", "driver_name", "method_name", "grpc_status_code"),
		inUse: prometheus.NewDesc("dra_resource_claims_in_use",
			"Claims that are prepared on the node, by driver; "+anyDriver+" counts each claim once.", []string{"driver_name"}, nil),
	}
}

// observe records an operation for a pod that began at a time.
func (m *metrics) observe(name string, began time.Time, err error) {
	m.operations.WithLabelValues(name, strconv.FormatBool(err != nil)).Observe(time.Since(began).Seconds())
}

// intercept returns what measures the calls of a driver.
func (m *metrics) intercept(driver string) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		began := time.Now()
		err := call(ctx, method, request, reply, conn, opts...)
		m.calls.WithLabelValues(driver, method, status.Code(err).String()).Observe(time.Since(began).Seconds())
		return err
	})
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
