package operation

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// authorizations measures the decisions of the authorizer, under upstream's names. It is a [prometheus.Collector].
type authorizations struct {
	count    *prometheus.CounterVec
	duration *prometheus.HistogramVec

	allowed, denied decisions
}

// decisions measures decisions with one result.
type decisions struct {
	count    prometheus.Counter
	duration prometheus.Observer
}

func newAuthorizations() *authorizations {
	a := &authorizations{
		count: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "authorization_attempts_total", Help: "Decisions about requests."}, []string{"result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "authorization_duration_seconds", Help: "Time that authorization took.", Buckets: prometheus.ExponentialBuckets(.001, 2, 15),
		}, []string{"result"}),
	}
	a.allowed = decisions{a.count.WithLabelValues("allowed"), a.duration.WithLabelValues("allowed")}
	a.denied = decisions{a.count.WithLabelValues("denied"), a.duration.WithLabelValues("denied")}
	return a
}

// observe counts a decision that took the time since start.
func (d *decisions) observe(start time.Time) {
	d.count.Inc()
	d.duration.Observe(time.Since(start).Seconds())
}

// Describe implements [prometheus.Collector].
func (a *authorizations) Describe(to chan<- *prometheus.Desc) {
	a.count.Describe(to)
	a.duration.Describe(to)
}

// Collect implements [prometheus.Collector].
func (a *authorizations) Collect(to chan<- prometheus.Metric) {
	a.count.Collect(to)
	a.duration.Collect(to)
}
