package standalone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/health"
	"github.com/sampan-io/sampan/proxy/userspace"
)

const (
	healthzFlag = "healthz-bind-address"
	metricsFlag = "metrics-bind-address"
)

// A page is an HTTP endpoint at the address of a flag.
type page struct{ flag, at string }

// pages returns the wanted pages.
func (o Options) pages() []page {
	all := []page{{healthzFlag, o.HealthzAddress}, {metricsFlag, o.MetricsAddress}}
	return slices.DeleteFunc(all, func(p page) bool { return p.at == "" })
}

// A webListener serves a page. While the proxy waits for the API server the page says so.
type webListener struct {
	page
	listener net.Listener
	answers  atomic.Pointer[http.ServeMux]
}

// listen opens the addresses of all pages, or none.
func (o Options) listen(ctx context.Context) (listeners []*webListener, err error) {
	var errs []error
	for _, p := range o.pages() {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", p.at)
		if err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", p.flag, err))
			continue
		}
		d := &webListener{page: p, listener: l}
		d.answers.Store(whileWaiting())
		listeners = append(listeners, d)
	}
	if len(errs) > 0 {
		for _, d := range listeners {
			_ = d.listener.Close()
		}
		return nil, errors.Join(errs...)
	}
	for _, d := range listeners {
		o.Log.InfoContext(ctx, "the service proxy listens", "address", d.listener.Addr(), "for", strings.TrimSuffix(d.flag, "-bind-address"))
	}
	return listeners, nil
}

// serve serves until ctx is cancelled.
func (d *webListener) serve(ctx context.Context, log *slog.Logger) {
	answer := func(w http.ResponseWriter, r *http.Request) { d.answers.Load().ServeHTTP(w, r) }
	if err := health.Serve(ctx, d.listener, http.HandlerFunc(answer)); err != nil {
		log.ErrorContext(ctx, "the service proxy does not answer any more", "address", d.at, "err", err)
	}
}

// A waiter is a [health.Subject] that has made no rules yet: it is live, and its node should get no
// traffic.
type waiter struct{}

func (waiter) Healthy() bool      { return true }
func (waiter) Eligible() bool     { return false }
func (waiter) Updated() time.Time { return time.Time{} }

// whileWaiting serves pages before the API server has returned the node.
func whileWaiting() *http.ServeMux {
	mux, says := http.NewServeMux(), health.Handler(waiter{})
	mux.Handle("GET /healthz", says)
	mux.Handle("GET /livez", says)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the service proxy waits for the API server", http.StatusServiceUnavailable)
	})
	return mux
}

// open has the pages report on the proxy.
func (o Options) open(p *proxy.Proxy, f *userspace.Forwarder, listeners []*webListener) {
	healthz, metrics := http.NewServeMux(), http.NewServeMux()
	healthz.Handle("GET /", health.Handler(p))
	metrics.Handle("GET /", health.Pages(p, o.Mode == "userspace", append(f.Collectors(), p.Metrics()...)...))
	for _, d := range listeners {
		d.answers.Store(map[string]*http.ServeMux{healthzFlag: healthz, metricsFlag: metrics}[d.flag])
	}
}
