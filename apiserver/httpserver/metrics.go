package httpserver

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sampan-io/sampan/apiserver/fairness"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/catalog"
)

// A subject is the labels of a request. Its strings come from the catalog and from lists of constants, so that
// clients cannot make series.
type subject struct{ verb, dryRun, group, version, resource, subresource, scope string }

// labels returns the values of the labels that most metrics of requests have.
func (s *subject) labels() []string {
	return []string{s.verb, s.group, s.version, s.resource, s.subresource, s.scope, component}
}

// component is the API server's name in upstream's metrics.
const component = "apiserver"

// Names of labels of the metrics of requests.
var requestLabels = []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}

// metrics counts requests, under the names that Kubernetes uses, in a registry of
// its own.
type metrics struct {
	registry *prometheus.Registry
	handler  http.Handler
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	sli      *prometheus.HistogramVec
	sizes    *prometheus.HistogramVec
	streams  *prometheus.GaugeVec
	events   *prometheus.CounterVec

	authenticated  *prometheus.CounterVec
	attempts       *prometheus.CounterVec
	authentication *prometheus.HistogramVec

	inFlight [2]atomic.Int64 // requests that have a seat: reads and writes

	mu     sync.RWMutex
	series map[counted]*series // guarded by mu; as many as there are subjects and codes
	judged [judgements]judged  // made by newMetrics
}

type counted struct {
	subject
	code int
}

type series struct {
	requests prometheus.Counter
	duration prometheus.Observer // nil for requests that last as long as clients want
	sli      prometheus.Observer // as duration
	sizes    prometheus.Observer // nil except for reads
}

// A judgement is the result of authentication.
type judgement int

const (
	authenticationSuccess judgement = iota
	authenticationFailure
	authenticationError
	judgements
)

// judged counts judgements.
type judged struct {
	count    prometheus.Counter
	duration prometheus.Observer
}

// Measure adds the metrics of another part of the process to /metrics.
func (s *Server) Measure(c prometheus.Collector) error { return s.metrics.registry.Register(c) }

// latencies and sliLatencies are the buckets of upstream, in seconds. Its smallest is 5 ms; most requests of a small
// cluster take less, so there are two more.
var (
	sliLatencies = []float64{.05, .1, .2, .4, .6, .8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	latencies    = append([]float64{.0005, .002, .005, .025}, sliLatencies...)
)

func newMetrics(limits *fairness.Limits, others ...prometheus.Collector) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	withDryRun := []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}
	m := &metrics{
		requests: counter("apiserver_request_total", "Requests by verb, resource and HTTP status code.", append(withDryRun, "code")...),
		duration: histogram("apiserver_request_duration_seconds", "Time from the request to the end of its answer, except for watches, blocking reads and streams.", latencies, withDryRun...),
		sli:      histogram("apiserver_request_sli_duration_seconds", "As apiserver_request_duration_seconds, without the time that a request waited for a seat.", sliLatencies, requestLabels...),
		sizes:    histogram("apiserver_response_sizes", "Bytes of answers to reads.", prometheus.ExponentialBuckets(1000, 10, 7), requestLabels...),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests", Help: "Watches, blocking reads (GET …?until=…) and streams under way.",
		}, requestLabels),
		events:         counter("apiserver_watch_events_total", "Events that were sent to watches.", "group", "version", "resource"),
		authenticated:  counter("authenticated_user_requests", "Requests of authenticated users, by a few well-known names.", "username"),
		attempts:       counter("authentication_attempts", "Attempts to authenticate.", "result"),
		authentication: histogram("authentication_duration_seconds", "Time that authentication took.", prometheus.ExponentialBuckets(.001, 2, 15), "result"),
		series:         map[counted]*series{},
	}
	for i, result := range []string{"success", "failure", "error"} {
		m.judged[i] = judged{m.attempts.WithLabelValues(result), m.authentication.WithLabelValues(result)}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.requests, m.duration, m.sli, m.sizes, m.streams, m.events,
		m.authenticated, m.attempts, m.authentication, inFlight{&m.inFlight}, refusals{limits},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(others...)
	m.registry = registry
	m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return m
}

// judge counts a decision.
func (m *metrics) judge(what judgement, since time.Time) {
	m.judged[what].count.Inc()
	m.judged[what].duration.Observe(time.Since(since).Seconds())
}

// identified counts a request of an authenticated user. Names are few, so that users cannot make series.
func (m *metrics) identified(name string) {
	switch {
	case name == "system:serviceaccount:kube-system:default", name == "admin":
	case strings.Contains(name, "@"):
		name = "email_id"
	default:
		name = "other"
	}
	m.authenticated.WithLabelValues(name).Inc()
}

// observe counts a request that was answered with so many bytes. It waited for a part of the time.
func (m *metrics) observe(s *subject, code, size int, took, waited time.Duration) {
	key := counted{*s, code}
	m.mu.RLock()
	known := m.series[key]
	m.mu.RUnlock()
	if known == nil {
		known = m.add(key)
	}
	known.requests.Inc()
	if known.duration != nil {
		known.duration.Observe(took.Seconds())
		known.sli.Observe((took - waited).Seconds())
	}
	if known.sizes != nil {
		known.sizes.Observe(float64(size))
	}
}

func (m *metrics) add(key counted) *series {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.series[key]; known != nil {
		return known
	}
	labels := key.labels()
	withDryRun := append([]string{key.verb, key.dryRun}, labels[1:]...)
	s := &series{requests: m.requests.WithLabelValues(append(withDryRun, strconv.Itoa(key.code))...)}
	if key.verb != "WATCH" && key.verb != verbWait && key.verb != "CONNECT" {
		s.duration, s.sli = m.duration.WithLabelValues(withDryRun...), m.sli.WithLabelValues(labels...)
	}
	if key.verb == "GET" || key.verb == "LIST" {
		s.sizes = m.sizes.WithLabelValues(labels...)
	}
	m.series[key] = s
	return s
}

// stream counts a watch or stream until the returned function is called.
func (m *metrics) stream(s *subject) (done func()) {
	g := m.streams.WithLabelValues(s.labels()...)
	g.Inc()
	return g.Dec
}

// verbLabels are the verbs of requests for resources in metrics.
var verbLabels = map[string]string{
	operation.VerbGet: "GET", operation.VerbList: "LIST", operation.VerbWatch: "WATCH", operation.VerbCreate: "POST", operation.VerbUpdate: "PUT", operation.VerbPatch: "PATCH",
	operation.VerbDelete: "DELETE", operation.VerbDeleteCollection: "DELETECOLLECTION",
}

// subjectOf returns the subject of a request for a resource that is served.
func subjectOf(r *http.Request, t *operation.Target, p *path, verb string) subject {
	s := subject{verb: verbLabels[verb], group: p.group, version: p.version, resource: p.resource, subresource: p.subresource, scope: "cluster"}
	switch {
	case p.name != "", verb == operation.VerbCreate:
		s.scope = "resource"
	case p.namespace != "":
		s.scope = "namespace"
	}
	if _, stream := t.Shape().(catalog.Stream); stream {
		s.verb = "CONNECT"
	}
	if verb == operation.VerbPatch && strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch+") {
		s.verb = "APPLY"
	}
	if strings.Contains(r.URL.RawQuery, "dryRun") {
		if s.dryRun = "invalid"; r.URL.Query().Get("dryRun") == "All" {
			s.dryRun = "All"
		}
	}
	return s
}

// pathSubject returns the subject of a request for a path that is not a resource. Only paths that
// are served, without their last parts, become a label.
func pathSubject(method, path string) subject {
	s := subject{verb: method}
	for _, known := range []string{
		"/livez", "/readyz", "/healthz", "/metrics", "/metrics/slis", "/version", "/api", "/apis", "/openapi/v2", "/openapi/v3",
		"/statusz", "/flagz", "/configz", "/debug/pprof", "/debug/api_priority_and_fairness",
	} {
		if behind, ok := strings.CutPrefix(path, known); ok && (behind == "" || behind[0] == '/') {
			s.subresource = known
		}
	}
	return s
}

// refusals collects which requests were refused because their user has too much, by class of users. Package
// priority counts the requests that found no seat.
type refusals struct{ limits *fairness.Limits }

var (
	descRefused = prometheus.NewDesc("sampan_apiserver_refused_requests_total",
		"Requests that were refused because their user, or all users of its class, have as many of something as they may.", []string{"class", "resource"}, nil)
	descInFlight = prometheus.NewDesc("apiserver_current_inflight_requests", "Requests that have a seat.", []string{"request_kind"}, nil)
	descObjects  = prometheus.NewDesc("apiserver_storage_objects", "Stored objects.", []string{"resource"}, nil)
	descResource = prometheus.NewDesc("apiserver_resource_objects", "Stored objects.", []string{"group", "resource"}, nil)
)

// Describe implements [prometheus.Collector].
func (refusals) Describe(to chan<- *prometheus.Desc) { to <- descRefused }

// Collect implements [prometheus.Collector].
func (r refusals) Collect(to chan<- prometheus.Metric) {
	for _, level := range fairness.Levels() {
		for of, n := range r.limits.Refused(level) {
			to <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, float64(n), level.String(), of.String())
		}
	}
}

// inFlight collects how many requests are executed.
type inFlight struct{ n *[2]atomic.Int64 }

// Describe implements [prometheus.Collector].
func (inFlight) Describe(to chan<- *prometheus.Desc) { to <- descInFlight }

// Collect implements [prometheus.Collector].
func (f inFlight) Collect(to chan<- prometheus.Metric) {
	for i, kind := range []string{"readOnly", "mutating"} {
		to <- prometheus.MustNewConstMetric(descInFlight, prometheus.GaugeValue, float64(f.n[i].Load()), kind)
	}
}

// A counter is a [Store] that can count objects without listing them.
type counter interface{ Count(prefix string) int }

// objectCounts collects how many objects are stored.
type objectCounts struct {
	catalog *catalog.Catalog
	store   Store
}

// Describe implements [prometheus.Collector].
func (objectCounts) Describe(to chan<- *prometheus.Desc) {
	to <- descObjects
	to <- descResource
}

// Collect implements [prometheus.Collector].
func (o objectCounts) Collect(to chan<- prometheus.Metric) {
	store, ok := o.store.(counter)
	if !ok {
		return
	}
	for _, k := range o.catalog.Snapshot().Hubs() {
		if k.Answered() {
			continue
		}
		n := float64(store.Count(k.Prefix("")))
		to <- prometheus.MustNewConstMetric(descObjects, prometheus.GaugeValue, n, k.GR().String())
		to <- prometheus.MustNewConstMetric(descResource, prometheus.GaugeValue, n, k.Group, k.Resource)
	}
}
