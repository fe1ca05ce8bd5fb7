package condition

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sampan-io/sampan/internal/admissioncel"
)

// Metrics measures the match conditions of webhooks and policies, under upstream's names, which are alpha there. It is a
// [prometheus.Collector].
type Metrics struct {
	faults     *prometheus.CounterVec
	exclusions *prometheus.CounterVec
	times      *prometheus.HistogramVec
}

// NewMetrics returns metrics that have counted nothing.
func NewMetrics() *Metrics {
	const prefix = "apiserver_admission_match_condition_"
	labels := []string{"name", "kind", "type", "operation"}
	return &Metrics{
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "evaluation_errors_total", Help: "Match conditions of webhooks and policies that could not be evaluated.",
		}, labels),
		exclusions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "exclusions_total", Help: "Requests about which a webhook was not asked because of its match conditions.",
		}, labels),
		times: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "evaluation_seconds", Help: "Time to evaluate match conditions that excluded a request or failed.",
			Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25},
		}, labels),
	}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.faults.Describe(to)
	m.exclusions.Describe(to)
	m.times.Describe(to)
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.faults.Collect(to)
	m.exclusions.Collect(to)
	m.times.Collect(to)
}

// A Subject is an owner of match conditions, as the labels of metrics name it.
type Subject struct {
	Name      string // of the webhook or the policy
	Kind      Kind
	Type      string // admit or validate
	Operation string // of the request
}

// A Kind is a kind of subject.
type Kind string

// The kinds.
const (
	Webhook Kind = "webhook"
	Policy  Kind = "policy"
)

// Match reports whether conditions hold, and measures that as upstream does: conditions that all hold are not measured, and
// exclusions are counted for webhooks alone. M may be nil.
func (m *Metrics) Match(s Subject, conditions admissioncel.Conditions, e *admissioncel.Evaluation) (holds bool, err error) {
	start := time.Now()
	v, err := conditions.Match(e)
	if m == nil || v.Holds {
		return v.Holds, err
	}
	labels := []string{s.Name, string(s.Kind), s.Type, s.Operation}
	m.times.WithLabelValues(labels...).Observe(time.Since(start).Seconds())
	if v.Faults > 0 {
		m.faults.WithLabelValues(labels...).Add(float64(v.Faults))
	}
	return false, err
}

// Excluded counts a request about which a webhook is not asked.
func (m *Metrics) Excluded(s Subject) {
	if m != nil {
		m.exclusions.WithLabelValues(s.Name, string(s.Kind), s.Type, s.Operation).Inc()
	}
}
