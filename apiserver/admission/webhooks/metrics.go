package webhooks

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Why a write was rejected, as the label error_type says it.
const (
	callingError = "calling_webhook_error"
	serverError  = "apiserver_internal_error"
	noError      = "no_error"
)

// Metrics measures the calls of webhooks, under upstream's names. It is a [prometheus.Collector].
type Metrics struct {
	durations  *prometheus.HistogramVec
	rejections *prometheus.CounterVec
	open       *prometheus.CounterVec
	requests   *prometheus.CounterVec
}

const prefix = "apiserver_admission_webhook_"

// NewMetrics returns the metrics of both plug-ins.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	return &Metrics{
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "admission_duration_seconds", Help: "Time that calls of an admission webhook took.",
			Buckets: []float64{.005, .025, .1, .5, 1, 2.5, 10, 25},
		}, []string{"name", "type", "operation", "rejected"}),
		rejections: counter("rejection_count", "Writes that an admission webhook rejected, or that were rejected because it failed.", "name", "type", "operation", "error_type", "rejection_code"),
		open:       counter("fail_open_count", "Failed calls of an admission webhook that were ignored.", "name", "type"),
		requests:   counter("request_total", "Calls of an admission webhook.", "name", "type", "operation", "code", "rejected"),
	}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.durations.Describe(to)
	m.rejections.Describe(to)
	m.open.Describe(to)
	m.requests.Describe(to)
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.durations.Collect(to)
	m.rejections.Collect(to)
	m.open.Collect(to)
	m.requests.Collect(to)
}

// An observation is one call.
type observation struct {
	name, step, operation string
	took                  time.Duration
	code                  int
	rejected              bool
	cause                 string // of a rejection; empty means that it is not counted as one
}

// maxCode bounds the values of the label for codes.
const maxCode = 600

func (m *Metrics) observe(o *observation) {
	code, rejected := strconv.Itoa(min(o.code, maxCode)), strconv.FormatBool(o.rejected)
	m.durations.WithLabelValues(o.name, o.step, o.operation, rejected).Observe(o.took.Seconds())
	m.requests.WithLabelValues(o.name, o.step, o.operation, code, rejected).Inc()
	if o.rejected && o.cause != "" {
		m.rejections.WithLabelValues(o.name, o.step, o.operation, o.cause, code).Inc()
	}
}

func (m *Metrics) failedOpen(name, step string) { m.open.WithLabelValues(name, step).Inc() }
