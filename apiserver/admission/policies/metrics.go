package policies

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts the checks of policies under upstream's names. As upstream, validations that passed are not counted.
type Metrics struct {
	validations, mutations     *prometheus.CounterVec
	validationTime, changeTime *prometheus.HistogramVec
}

// checkTimes are the buckets of upstream, in seconds.
var checkTimes = []float64{0.0000005, 0.001, 0.01, 0.1, 1.0}

// NewMetrics returns metrics that have counted nothing.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: checkTimes}, labels)
	}
	return &Metrics{
		validations: counter("apiserver_validating_admission_policy_check_total", "Checks of ValidatingAdmissionPolicies that did not pass, by policy, binding and the action taken.",
			"policy", "policy_binding", "error_type", "enforcement_action"),
		validationTime: histogram("apiserver_validating_admission_policy_check_duration_seconds", "Time that a check took, by policy, binding and the action taken.",
			"policy", "policy_binding", "error_type", "enforcement_action"),
		mutations:  counter("apiserver_mutating_admission_policy_check_total", "Mutations by MutatingAdmissionPolicies, by policy and binding.", "policy", "policy_binding", "error_type"),
		changeTime: histogram("apiserver_mutating_admission_policy_check_duration_seconds", "Time that a mutation took, by policy and binding.", "policy", "policy_binding", "error_type"),
	}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(to)
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(to)
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.validations, m.validationTime, m.mutations, m.changeTime}
}

// errorType returns the name of an error in metrics.
func errorType(message string) string {
	switch {
	case message == "":
		return "no_error"
	case strings.HasPrefix(message, "compilation"):
		return "compile_error"
	case strings.HasPrefix(message, "validation failed due to running out of cost budget"):
		return "out_of_budget"
	}
	return "invalid_error"
}

func (m *Metrics) checked(policy, binding string, f *finding, action string) {
	if m == nil {
		return
	}
	kind := errorType(f.message)
	m.validations.WithLabelValues(policy, binding, kind, action).Inc()
	m.validationTime.WithLabelValues(policy, binding, kind, action).Observe(f.took.Seconds())
}

func (m *Metrics) mutated(policy, binding string, err error, took time.Duration) {
	if m == nil {
		return
	}
	message := ""
	if err != nil {
		message = err.Error()
	}
	kind := errorType(message)
	m.mutations.WithLabelValues(policy, binding, kind).Inc()
	m.changeTime.WithLabelValues(policy, binding, kind).Observe(took.Seconds())
}
