package pluginregistry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// Calls is a metric of upstream's kubelet: how long gRPC calls of drivers took, by driver, method and status code. It
// has series of registered drivers only.
type Calls struct {
	*prometheus.HistogramVec
	registered func(driver string) bool
	mu         sync.Mutex // held while a series is added or removed
}

// NewCalls returns a metric without series. registered reports whether a driver is registered, or is being registered.
func NewCalls(opts prometheus.HistogramOpts, registered func(driver string) bool) *Calls {
	return &Calls{
		HistogramVec: prometheus.NewHistogramVec(opts, []string{"driver_name", "method_name", "grpc_status_code"}),
		registered:   registered,
	}
}

// Measure returns an option that measures the calls of a connection to a driver.
func (c *Calls) Measure(driver string) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		began := time.Now()
		err := call(ctx, method, request, reply, conn, opts...)
		c.observe(time.Since(began), driver, method, status.Code(err).String())
		return err
	})
}

// observe records a call, unless its driver was removed meanwhile.
func (c *Calls) observe(took time.Duration, driver, method, code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.registered(driver) {
		c.WithLabelValues(driver, method, code).Observe(took.Seconds())
	}
}

// Remove removes the series of a driver, unless it is registered again.
func (c *Calls) Remove(driver string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.registered(driver) {
		c.DeletePartialMatch(prometheus.Labels{"driver_name": driver})
	}
}
