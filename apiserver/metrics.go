package apiserver

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sampan-io/sampan/apiserver/fairness"
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

// Measure adds the metrics of another part of the process to /metrics.
func (s *Server) Measure(c prometheus.Collector) error { return s.metrics.registry.Register(c) }

func newMetrics(limits *fairness.Limits) *metrics {
	labels := []string{"verb", "group", "resource", "subresource"}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total", Help: "Requests by verb, resource and HTTP status code.",
		}, append(labels, "code")),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_duration_seconds", Help: "Time from the request to the end of its answer, except for watches, blocking reads and streams.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, labels),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests", Help: "Watches, blocking reads (GET …?until=…) and streams under way.",
		}, labels),
		series: map[counted]*series{},
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.requests, m.duration, m.streams, flowControl{limits},
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

// flowControl collects how the levels of users are used, under the names that upstream uses.
type flowControl struct{ limits *fairness.Limits }

var ( //nolint:gochecknoglobals // constants
	descExecuting = prometheus.NewDesc("apiserver_flowcontrol_current_executing_requests",
		"Requests that are executed, except for watches, streams and requests of the priority level exempt.", []string{"priority_level"}, nil)
	descWaiting = prometheus.NewDesc("apiserver_flowcontrol_current_inqueue_requests",
		"Requests that wait to be executed.", []string{"priority_level"}, nil)
	descRefused = prometheus.NewDesc("apiserver_flowcontrol_rejected_requests_total",
		"Requests that were refused because their user or priority level has reached its limit.", []string{"priority_level", "reason"}, nil)
)

// Describe implements [prometheus.Collector].
func (flowControl) Describe(to chan<- *prometheus.Desc) {
	to <- descExecuting
	to <- descWaiting
	to <- descRefused
}

// Collect implements [prometheus.Collector].
func (f flowControl) Collect(to chan<- prometheus.Metric) {
	for _, level := range fairness.Levels() {
		s := f.limits.Stats(level)
		to <- prometheus.MustNewConstMetric(descExecuting, prometheus.GaugeValue, float64(s.Executing), level.String())
		to <- prometheus.MustNewConstMetric(descWaiting, prometheus.GaugeValue, float64(s.Waiting), level.String())
		for reason, n := range s.Refused {
			to <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, float64(n), level.String(), reason)
		}
	}
}
