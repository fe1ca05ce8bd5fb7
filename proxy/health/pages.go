package health

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The names of proxy modes at /proxyMode: those of kube-proxy.
const (
	kernelMode    = "nftables"
	userspaceMode = "userspace"
)

// Pages serves the pages of kube-proxy's metrics address: /metrics of the process and of these collectors, /proxyMode,
// and what [Handler] serves. It panics if two collectors have the same metrics.
func Pages(s Subject, userspace bool, all ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(all...)
	mode := kernelMode
	if userspace {
		mode = userspaceMode
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /proxyMode", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write([]byte(mode))
	})
	mux.Handle("GET /", Handler(s))
	return mux
}
