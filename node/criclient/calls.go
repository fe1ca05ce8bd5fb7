package criclient

import (
	"context"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// calls measures the calls of a container runtime, under the names that upstream's kubelet gives its operations.
type calls struct {
	total, errors *prometheus.CounterVec
	duration      *prometheus.HistogramVec
	sandboxes     *prometheus.HistogramVec
	sandboxErrors *prometheus.CounterVec

	known sync.Map // from the method of gRPC to its *callMetrics
}

// callMetrics has the samples of one method, so that they are looked up once.
type callMetrics struct {
	total    prometheus.Counter
	duration prometheus.Observer
	name     string
}

func callCounter(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: "kubelet", Name: name, Help: help}, []string{label})
}

func callHistogram(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Subsystem: "kubelet", Name: name, Help: help, Buckets: buckets}, []string{label})
}

func newCalls() *calls {
	return &calls{
		total:         callCounter("runtime_operations_total", "Calls of the container runtime.", "operation_type"),
		errors:        callCounter("runtime_operations_errors_total", "Calls of the container runtime that failed.", "operation_type"),
		duration:      callHistogram("runtime_operations_duration_seconds", "How long calls of the container runtime took.", prometheus.ExponentialBuckets(.005, 2.5, 14), "operation_type"),
		sandboxes:     callHistogram("run_podsandbox_duration_seconds", "How long it took to run the sandbox of a pod.", prometheus.DefBuckets, "runtime_handler"),
		sandboxErrors: callCounter("run_podsandbox_errors_total", "Sandboxes of pods that could not be run.", "runtime_handler"),
	}
}

// collectors returns everything that is measured.
func (c *calls) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.total, c.errors, c.duration, c.sandboxes, c.sandboxErrors}
}

// unary is a [grpc.UnaryClientInterceptor].
func (c *calls) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	began := time.Now()
	err := invoke(ctx, method, req, reply, cc, opts...)
	took := time.Since(began).Seconds()
	// An answer that something does not exist, and the end of a caller, are not failures of the runtime.
	failed := err != nil && status.Code(err) != codes.NotFound && status.Code(err) != codes.Canceled
	m := c.of(method)
	m.total.Inc()
	m.duration.Observe(took)
	if failed {
		c.errors.WithLabelValues(m.name).Inc()
	}
	if r, ok := req.(*cri.RunPodSandboxRequest); ok {
		c.sandboxes.WithLabelValues(r.GetRuntimeHandler()).Observe(took)
		if failed {
			c.sandboxErrors.WithLabelValues(r.GetRuntimeHandler()).Inc()
		}
	}
	return err
}

// of returns the samples of a method.
func (c *calls) of(method string) *callMetrics {
	if known, ok := c.known.Load(method); ok {
		return known.(*callMetrics) // nothing else is in it
	}
	name := operationType(path.Base(method))
	known, _ := c.known.LoadOrStore(method, &callMetrics{c.total.WithLabelValues(name), c.duration.WithLabelValues(name), name})
	return known.(*callMetrics) // nothing else is in it
}

// operationType returns upstream's name of a call: RunPodSandbox is run_podsandbox.
func operationType(call string) string {
	call = strings.ReplaceAll(call, "PodSandbox", "Podsandbox")
	call = strings.ReplaceAll(call, "PortForward", "Port_Forward")
	var b strings.Builder
	for i, r := range call {
		if r >= 'A' && r <= 'Z' && i > 0 && !strings.HasSuffix(b.String(), "_") {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}
