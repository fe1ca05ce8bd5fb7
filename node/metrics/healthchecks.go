package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// HealthChecks have the results of the health checks of the node's API, for /metrics/slis.
type HealthChecks struct {
	registry *prometheus.Registry
	is       *prometheus.GaugeVec
	total    *prometheus.CounterVec
}

func newHealthChecks() *HealthChecks {
	h := &HealthChecks{
		registry: prometheus.NewRegistry(),
		is: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "1 if the health check succeeded the last time, otherwise 0.",
		}, []string{"name", "type"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "Results of health checks.",
		}, []string{"name", "status", "type"}),
	}
	h.registry.MustRegister(h.is, h.total, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return h
}

// Observe counts the result of a check.
func (h *HealthChecks) Observe(name string, healthy bool) {
	const endpoint = "healthz"
	is, status := 1.0, "success"
	if !healthy {
		is, status = 0, "error"
	}
	h.is.WithLabelValues(name, endpoint).Set(is)
	h.total.WithLabelValues(name, status, endpoint).Inc()
}

// ServeHTTP answers with the results. As in upstream's components, DELETE makes the samples start again.
func (h *HealthChecks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodDelete {
		h.is.Reset()
		h.total.Reset()
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte("metrics reset\n"))
		return
	}
	promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}
