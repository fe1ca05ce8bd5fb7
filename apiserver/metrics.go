package apiserver

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A subject is what requests are counted by. Its strings come from the catalog, so that
// clients cannot make series.
type subject struct{ verb, group, resource, subresource string }

// metrics counts requests, under the names that Kubernetes uses, in a registry of
// its own.
type metrics struct {
	registry *prometheus.Registry
	handler  http.Handler
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	streams  *prometheus.GaugeVec

	mu     sync.RWMutex
	series map[counted]*series // guarded by mu; as many as there are subjects and codes
}

type counted struct {
	subject
	code int
}

type series struct {
	requests prometheus.Counter
	duration prometheus.Observer
}

// Measure adds what another part of the process counts to what /metrics tells.
func (s *Server) Measure(c prometheus.Collector) error { return s.metrics.registry.Register(c) }

func newMetrics() *metrics {
	labels := []string{"verb", "group", "resource", "subresource"}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total", Help: "Requests by verb, resource and HTTP status code.",
		}, append(labels, "code")),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_duration_seconds", Help: "Time from the request to the end of its answer, watches, waits and streams apart.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, labels),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests", Help: "Watches, waits (GET …?until=…) and streams under way.",
		}, labels),
		series: map[counted]*series{},
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.requests, m.duration, m.streams,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry = registry
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return m
}

// observe counts a request that was answered.
func (m *metrics) observe(s subject, code int, took time.Duration) {
	key := counted{s, code}
	m.mu.RLock()
	known := m.series[key]
	m.mu.RUnlock()
	if known == nil {
		known = m.add(key)
	}
	known.requests.Inc()
	if known.duration != nil {
		known.duration.Observe(took.Seconds())
	}
}

func (m *metrics) add(key counted) *series {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.series[key]; known != nil {
		return known
	}
	s := &series{requests: m.requests.WithLabelValues(key.verb, key.group, key.resource, key.subresource, strconv.Itoa(key.code))}
	if key.verb != verbWatch && key.verb != verbWait && key.subresource != "log" && key.subresource != "proxy" {
		s.duration = m.duration.WithLabelValues(key.verb, key.group, key.resource, key.subresource)
	}
	m.series[key] = s
	return s
}

// stream counts a watch or stream until the returned function is called.
func (m *metrics) stream(s subject) (done func()) {
	g := m.streams.WithLabelValues(s.verb, s.group, s.resource, s.subresource)
	g.Inc()
	return g.Dec
}
