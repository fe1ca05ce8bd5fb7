package node

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// calls measures the calls of a container runtime, under the names that upstream's kubelet gives its operations.
type calls struct {
	total, errors    *prometheus.CounterVec
	duration         *prometheus.HistogramVec
	sandboxes        prometheus.Histogram
	sandboxErrors    prometheus.Counter
	started, unstart prometheus.Counter
}

func newCalls() *calls {
	return &calls{
		total:         counterVec("runtime_operations_total", "Calls of the container runtime.", "operation_type"),
		errors:        counterVec("runtime_operations_errors_total", "Calls of the container runtime that failed.", "operation_type"),
		duration:      histogramVec("runtime_operations_duration_seconds", "How long calls of the container runtime took.", prometheus.ExponentialBuckets(.005, 2.5, 14), "operation_type"),
		sandboxes:     histogram("run_podsandbox_duration_seconds", "How long it took to run the sandbox of a pod.", prometheus.DefBuckets),
		sandboxErrors: counter("run_podsandbox_errors_total", "Sandboxes of pods that could not be run."),
		started:       counter("started_pods_total", "Sandboxes of pods that were run."),
		unstart:       counter("started_pods_errors_total", "Attempts at running the sandbox of a pod that failed."),
	}
}

// collectors returns everything that is measured.
func (c *calls) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.total, c.errors, c.duration, c.sandboxes, c.sandboxErrors, c.started, c.unstart}
}

// unary is a [grpc.UnaryClientInterceptor].
func (c *calls) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	began := time.Now()
	err := invoke(ctx, method, req, reply, cc, opts...)
	c.done(method, time.Since(began), err)
	return err
}

func (c *calls) done(method string, took time.Duration, err error) {
	name := operationType(path.Base(method))
	// An answer that something does not exist, and the end of a caller, are not failures of the runtime.
	failed := err != nil && status.Code(err) != codes.NotFound && status.Code(err) != codes.Canceled
	c.total.WithLabelValues(name).Inc()
	c.duration.WithLabelValues(name).Observe(took.Seconds())
	if failed {
		c.errors.WithLabelValues(name).Inc()
	}
	if name != "run_podsandbox" {
		return
	}
	c.sandboxes.Observe(took.Seconds())
	if failed {
		c.sandboxErrors.Inc()
		c.unstart.Inc()
	} else if err == nil {
		c.started.Inc()
	}
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
