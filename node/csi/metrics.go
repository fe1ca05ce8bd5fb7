package csi

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// newCalls returns the metric of upstream's kubelet about calls of drivers.
func newCalls() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Subsystem: "csi", Name: "operations_seconds", Help: "How long calls of CSI drivers took.",
		Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"})
}

// intercept returns what measures the calls of a driver. No volume is migrated: there are no plug-ins in the agent that drivers have
// replaced.
func (m *Manager) intercept(driver string) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		began := time.Now()
		err := call(ctx, method, request, reply, conn, opts...)
		m.calls.WithLabelValues(driver, method, status.Code(err).String(), "false").Observe(time.Since(began).Seconds())
		return err
	})
}

// Metrics returns the metrics of the manager.
func (m *Manager) Metrics() prometheus.Collector { return m.calls }
