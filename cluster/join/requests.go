package join

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requests measures requests to the API server, under the names of client-go.
type requests struct {
	total *prometheus.CounterVec
	took  *prometheus.HistogramVec
}

func newRequests() *requests {
	return &requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total", Help: "Requests to the API server.",
		}, []string{"code", "method", "host"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rest_client_request_duration_seconds", Help: "Time from a request to the API server until its response began.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60},
		}, []string{"verb", "host"}),
	}
}

// measured is a transport whose requests are measured.
type measured struct {
	http.RoundTripper
	*requests
}

// RoundTrip implements [http.RoundTripper].
func (m measured) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := m.RoundTripper.RoundTrip(r)
	code := "<error>" // client-go's word for a request without a response
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	m.total.WithLabelValues(code, r.Method, r.URL.Host).Inc()
	m.took.WithLabelValues(r.Method, r.URL.Host).Observe(time.Since(began).Seconds())
	return resp, err
}
