package scheduler

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts a scheduler's work, under the names that upstream's kube-scheduler uses.
type Metrics struct {
	attempts  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	sli       *prometheus.HistogramVec
	tries     prometheus.Histogram
	pending   *prometheus.GaugeVec
	queued    *prometheus.CounterVec
	size      *prometheus.GaugeVec
	victims   prometheus.Histogram
	evictions prometheus.Counter
	all       []prometheus.Collector
}

func newMetrics() *Metrics {
	m := &Metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_schedule_attempts_total",
			Help: "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.",
		}, []string{"profile", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_scheduling_attempt_duration_seconds", Help: "Scheduling attempt latency in seconds (decision and binding).",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"profile", "result"}),
		sli: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scheduler_pod_scheduling_sli_duration_seconds", Help: "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 20),
		}, []string{"attempts"}),
		tries: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_pod_scheduling_attempts", Help: "Number of attempts to successfully schedule a pod.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 5),
		}),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scheduler_pending_pods", Help: "Number of pending pods, by the queue type.",
		}, []string{"queue"}),
		queued: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scheduler_queue_incoming_pods_total", Help: "Number of pods added to scheduling queues by event and queue type.",
		}, []string{"event", "queue"}),
		size: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "scheduler_cache_size", Help: "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
		}, []string{"type"}),
		victims: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "scheduler_preemption_victims", Help: "Number of selected preemption victims",
			Buckets: prometheus.ExponentialBuckets(1, 2, 7),
		}),
		evictions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "scheduler_preemption_attempts_total", Help: "Total preemption attempts in the cluster till now",
		}),
	}
	m.all = []prometheus.Collector{m.attempts, m.duration, m.sli, m.tries, m.pending, m.queued, m.size, m.victims, m.evictions}
	for _, q := range []string{"active", "backoff", "unschedulable", "gated"} {
		m.pending.WithLabelValues(q).Set(0)
	}
	return m
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(to)
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(to)
	}
}

func (m *Metrics) incoming(event string) { m.queued.WithLabelValues(event, "active").Inc() }

// attempt counts a decision that found no node; one that did counts when it is bound.
func (m *Metrics) attempt(o *outcome) {
	if o.placement != nil {
		return
	}
	result := "unschedulable"
	if o.decision.Err != nil {
		result = "error"
	}
	m.attempts.WithLabelValues(o.it.profile.Name, result).Inc()
	m.duration.WithLabelValues(o.it.profile.Name, result).Observe(o.took.Seconds())
}

// bound counts a pod that was bound.
func (m *Metrics) bound(p *placement) {
	now := time.Now()
	m.attempts.WithLabelValues(p.profile.Name, "scheduled").Inc()
	m.duration.WithLabelValues(p.profile.Name, "scheduled").Observe(now.Sub(p.since).Seconds())
	m.sli.WithLabelValues(strconv.Itoa(min(p.attempts, 15))).Observe(now.Sub(p.queued).Seconds())
	m.tries.Observe(float64(p.attempts))
}

func (m *Metrics) preempted(victims int) {
	m.evictions.Inc()
	m.victims.Observe(float64(victims))
}

// sizes sets the gauges of the queue and the cluster. The loop calls it when it is idle.
func (m *Metrics) sizes(l *loop) {
	parked, gated := 0, 0
	for _, g := range l.queue.groups {
		if g.key.gated {
			gated += len(g.waiting)
		} else {
			parked += len(g.waiting)
		}
	}
	m.pending.WithLabelValues("active").Set(float64(len(l.queue.active)))
	m.pending.WithLabelValues("backoff").Set(float64(len(l.queue.backoff) + len(l.queue.later)))
	m.pending.WithLabelValues("unschedulable").Set(float64(parked))
	m.pending.WithLabelValues("gated").Set(float64(gated))
	m.size.WithLabelValues("nodes").Set(float64(len(l.cluster.Snapshot.Nodes())))
	m.size.WithLabelValues("pods").Set(float64(l.cluster.Snapshot.PlacedPods()))
	m.size.WithLabelValues("assumed_pods").Set(float64(len(l.placed)))
}
